// Ollama's API (serve/apis/ollama/ollama.h, kin_format_ollama_chat and _generate): bodies in, lines and documents out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/apis/ollama/ollama.h"
#include "tests/api_case.h"
#include "tests/place.h"

static kin_ollama_kind kind; // of the last translation

static int translate_chat(json_t **out, const json_t *body, kin_api_error *err) {
    return kin_ollama_translate_chat(&kind, out, body, err);
}

static int translate_generate(json_t **out, const json_t *body, kin_api_error *err) {
    return kin_ollama_translate_generate(&kind, out, body, err);
}

#define USER "'messages':[{'role':'user','content':'Hi'}]"

static void a_chat_streams_unless_told_otherwise(void **state) {
    (void)state;
    expect_chat(translate_chat, "{'model':'m'," USER "}", "{'model':'m','stream':true," USER "}");
    assert_int_equal(kind, KIN_OLLAMA_CHAT);
    expect_chat(translate_chat, "{'model':'m','stream':false," USER "}", "{'model':'m','stream':false," USER "}");
}

static void options_are_renamed_or_passed_on(void **state) {
    (void)state;
    expect_chat(translate_chat,
                "{" USER
                ",'keep_alive':'5m','options':{'num_predict':7,'temperature':0.5,'top_k':4,'top_p':0.9,'min_p':0.1,'seed':3,"
                "'stop':['a'],'repeat_penalty':1.1,'repeat_last_n':5,'presence_penalty':1,'frequency_penalty':2,'num_ctx':4096,"
                "'num_gpu':1,'mirostat':0}}",
                "{" USER ",'stream':true,'n_predict':7,'temperature':0.5,'top_k':4,'top_p':0.9,'min_p':0.1,'seed':3,'stop':['a'],"
                "'repeat_penalty':1.1,'repeat_last_n':5,'presence_penalty':1,'frequency_penalty':2,'mirostat':0}");
    expect_chat(translate_chat, "{" USER ",'options':{'num_predict':-2}}", "{" USER ",'stream':true,'n_predict':-1}");
    expect_chat(translate_chat, "{" USER ",'logprobs':true,'top_logprobs':2}",
                "{" USER ",'stream':true,'logprobs':true,'top_logprobs':2}");
}

static void formats_and_thinking_are_mapped(void **state) {
    (void)state;
    expect_chat(translate_chat, "{" USER ",'format':'json'}",
                "{" USER ",'stream':true,'response_format':{'type':'json_object'}}");
    expect_chat(translate_chat, "{" USER ",'format':''}", "{" USER ",'stream':true}");
    expect_chat(translate_chat, "{" USER ",'format':{'type':'object'}}",
                "{" USER ",'stream':true,'response_format':{'type':'json_schema','json_schema':"
                "{'name':'format','schema':{'type':'object'}}}}");
    expect_chat(translate_chat, "{" USER ",'think':false}",
                "{" USER ",'stream':true,'chat_template_kwargs':{'enable_thinking':false}}");
    expect_chat(translate_chat, "{" USER ",'think':'high'}",
                "{" USER ",'stream':true,'chat_template_kwargs':{'enable_thinking':true},'reasoning_effort':'high'}");
}

static void results_find_their_calls(void **state) {
    (void)state;
    expect_chat(
        translate_chat,
        "{'tools':[{'type':'function','function':{'name':'f'}}],'messages':[{'role':'assistant','content':'','thinking':'hm',"
        "'tool_calls':[{'function':{'name':'f','arguments':{'x':1}}},{'function':{'name':'g','arguments':{}}},"
        "{'id':'own','function':{'name':'h'}}]},{'role':'tool','content':'of g','tool_name':'g'},{'role':'tool','content':'of "
        "f'},"
        "{'role':'tool','content':'of h','tool_call_id':'own'},{'role':'system','content':'s'}]}",
        "{'stream':true,'parallel_tool_calls':true,'tools':[{'type':'function','function':{'name':'f'}}],'messages':["
        "{'role':'assistant','content':null,'reasoning_content':'hm','tool_calls':["
        "{'id':'call00000','type':'function','function':{'name':'f','arguments':'{\\\"x\\\":1}'}},"
        "{'id':'call00001','type':'function','function':{'name':'g','arguments':'{}'}},"
        "{'id':'own','type':'function','function':{'name':'h','arguments':'{}'}}]},"
        "{'role':'tool','content':'of g','tool_call_id':'call00001','name':'g'},{'role':'tool','content':'of "
        "f','tool_call_id':'call00000'},"
        "{'role':'tool','content':'of h','tool_call_id':'own'},{'role':'system','content':'s'}]}");
}

static void a_prompt_is_a_chat_and_a_raw_one_is_not(void **state) {
    (void)state;
    expect_chat(translate_generate, "{'model':'m','prompt':'Hi','system':'s','suffix':'','context':[],'template':''}",
                "{'model':'m','stream':true,'messages':[{'role':'system','content':'s'},{'role':'user','content':'Hi'}]}");
    assert_int_equal(kind, KIN_OLLAMA_CHAT);
    expect_chat(translate_generate,
                "{'model':'m','prompt':'Hi','raw':true,'format':'json','options':{'seed':1},'logprobs':true,'think':true}",
                "{'model':'m','stream':true,'prompt':'Hi','json_schema':{'type':'object'},'seed':1,'n_probs':1}");
    assert_int_equal(kind, KIN_OLLAMA_NATIVE);
    expect_chat(translate_generate, "{'prompt':'Hi','raw':true,'format':{'type':'array'}}",
                "{'stream':true,'prompt':'Hi','json_schema':{'type':'array'}}");
}

static void without_a_prompt_only_the_model_is_wanted(void **state) {
    (void)state;
    kin_text_buffer out = {0};
    expect_chat(translate_generate, "{'model':'m'}", "{'model':'m'}");
    assert_int_equal(kind, KIN_OLLAMA_LOAD);
    expect_chat(translate_chat, "{'model':'m','messages':[],'keep_alive':0}", "{'model':'m'}");
    assert_int_equal(kind, KIN_OLLAMA_UNLOAD);
    expect_chat(translate_chat, "{'model':'m','messages':[],'keep_alive':'0s'}", "{'model':'m'}");
    assert_int_equal(kind, KIN_OLLAMA_UNLOAD);
    expect_chat(translate_chat, "{'model':'m','messages':[],'keep_alive':'0.5h'}", "{'model':'m'}");
    assert_int_equal(kind, KIN_OLLAMA_LOAD);
    kin_ollama_put_loaded(KIN_OLLAMA_LOAD, false, "m", 0, &out);
    expect_json(read_json(out.at, out.len),
                "{'model':'m','created_at':'1970-01-01T00:00:00Z','response':'','done':true,'done_reason':'load'}");
    out.len = 0;
    kin_ollama_put_loaded(KIN_OLLAMA_UNLOAD, true, "m", 0, &out);
    expect_json(read_json(out.at, out.len),
                "{'model':'m','created_at':'1970-01-01T00:00:00Z','message':{'role':'assistant','content':''},"
                "'done':true,'done_reason':'unload'}");
    kin_text_fini(&out);
}

static void what_is_embedded_has_two_names(void **state) {
    (void)state;
    expect_chat(kin_ollama_translate_embed, "{'model':'m','input':['a','b'],'truncate':false}",
                "{'model':'m','input':['a','b'],'truncate':false}");
    expect_chat(kin_ollama_translate_embed, "{'model':'m','prompt':'a'}", "{'model':'m','input':'a','truncate':true}");
    expect_refused(kin_ollama_translate_embed, "{'model':'m'}", 400, "input", "is required");
    expect_refused(kin_ollama_translate_embed, "{'input':7}", 400, "input", "string");
}

static void what_is_wrong_or_not_there_is_named_by_its_path(void **state) {
    (void)state;
    expect_refused(translate_chat, "[]", 400, "", "must be a JSON object");
    expect_refused(translate_chat, "{'messages':['a']}", 400, "messages[0]", "object");
    expect_refused(translate_chat, "{'messages':[{'content':'a'}]}", 400, "messages[0].role", "is required");
    expect_refused(translate_chat, "{'messages':[{'role':'user','content':[]}]}", 400, "messages[0].content", "string");
    expect_refused(translate_chat,
                   "{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':'{}'}}]}]}", 400,
                   "messages[0].tool_calls[0].function.arguments", "type must be object, but is string");
    expect_refused(translate_chat, "{'messages':[{'role':'assistant','tool_calls':[{}]}]}", 400,
                   "messages[0].tool_calls[0].function", "is required");
    expect_refused(translate_chat, "{'messages':[{'role':'user','content':'a','images':['x']}]}", 501, "messages[0].images",
                   "text only");
    expect_refused(translate_chat, "{" USER ",'stream':1}", 400, "stream", "boolean");
    expect_refused(translate_chat, "{" USER ",'format':'xml'}", 400, "format", "JSON schema");
    expect_refused(translate_chat, "{" USER ",'think':1}", 400, "think", "boolean");
    expect_refused(translate_chat, "{" USER ",'options':[]}", 400, "options", "object");
    expect_refused(translate_chat, "{" USER ",'options':{'num_predict':'x'}}", 400, "options.num_predict", "integer");
    expect_refused(translate_generate, "{'prompt':'a','suffix':'b'}", 501, "suffix", "/infill");
    expect_refused(translate_generate, "{'prompt':'a','template':'b'}", 501, "template", "raw");
    expect_refused(translate_generate, "{'prompt':'a','context':[1]}", 501, "context", "/api/chat");
    expect_refused(translate_generate, "{'prompt':'a','images':['b']}", 501, "images", "text only");
    expect_refused(translate_generate, "{'prompt':['a']}", 400, "prompt", "string");
}

// ---- answers

#define HEAD "'model':'demo','created_at':'1970-01-01T00:16:40Z'"
#define SAID(more) "{" HEAD ",'message':{'role':'assistant'," more "},'done':false}"
#define END(reason)                                                                                                              \
    "'done':true,'done_reason':'" reason "','total_duration':5000000,'load_duration':0,'prompt_eval_count':9,"                   \
    "'prompt_eval_duration':2000000,'eval_count':7,'eval_duration':3000000"
#define CALLS                                                                                                                    \
    "{'id':'id_f','function':{'index':0,'name':'f','arguments':{'x':1}}},"                                                       \
    "{'id':'id_g','function':{'index':1,'name':'g','arguments':{}}}"

static void write_all_kinds(written *w) {
    write_event(w, KIN_REPLY_REASONING, "h");
    write_event(w, KIN_REPLY_REASONING, "m");
    write_event(w, KIN_REPLY_TEXT, "so");
    write_call(w, "f", "{\"x\":", "1}");
    write_call(w, "g", "{}", NULL);
}

static void expect_lines(written *w, const char *want) {
    expect_json(lines_of(&w->out), want);
    drop_writing(w);
}
#define expect_lines(...) FROM_TEST(expect_lines(__VA_ARGS__))

static void a_chat_is_a_line_for_each_piece(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_ollama_chat, true);
    assert_null(w.format->ping); // clients would take an empty line for broken JSON
    write_all_kinds(&w);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    expect_lines(
        &w, "[" SAID("'content':'','thinking':'h'") "," SAID("'content':'','thinking':'m'") "," SAID("'content':'so'") "," SAID(
                "'content':'','tool_calls':[{'id':'id_f','function':{'index':0,'name':'f','arguments':"
                "{'x':1}}}]") "," SAID("'content':'','tool_calls':[{'id':'id_g','function':{'index':1,"
                                       "'name':'g','arguments':{}}}]") ",{" HEAD ",'message':{'role':'assistant','"
                                                                       "content':''}," END("stop") "}]");
}

static void a_document_of_a_chat_holds_all(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_ollama_chat, false);
    write_all_kinds(&w);
    assert_int_equal(w.out.len, 0);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    expect_document(&w, "{" HEAD ",'message':{'role':'assistant','content':'so','thinking':'hm','tool_calls':[" CALLS
                        "]}," END("stop") "}");
}

static void a_call_that_is_cut_off_is_none(void **state) {
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        written w;
        begin_writing(&w, &kin_format_ollama_chat, stream);
        write_event(&w, KIN_REPLY_TOOL_BEGIN, "f");
        write_event(&w, KIN_REPLY_TOOL_ARGUMENTS, "{\"x");
        end_writing(&w, KIN_FINISH_LENGTH, "");
        expect_document(&w, "{" HEAD ",'message':{'role':'assistant','content':''}," END("length") "}");
    }
}

static void what_is_generated_is_a_response(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_ollama_generate, true);
    write_event(&w, KIN_REPLY_REASONING, "hm");
    write_event(&w, KIN_REPLY_TEXT, "so");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_lines(&w, "[{" HEAD ",'response':'','thinking':'hm','done':false},{" HEAD ",'response':'so','done':false},"
                     "{" HEAD ",'response':''," END("length") "}]");
    begin_writing(&w, &kin_format_ollama_generate, false);
    write_event(&w, KIN_REPLY_TEXT, "s");
    write_event(&w, KIN_REPLY_TEXT, "o");
    end_writing(&w, KIN_FINISH_STOP_WORD, "x");
    expect_document(&w, "{" HEAD ",'response':'so'," END("stop") "}");
}

#define PROBS                                                                                                                    \
    "'logprobs':[{'id':7,'token':'a','bytes':[97],'logprob':-1.0,'top_logprobs':"                                                \
    "[{'id':8,'token':'b','bytes':[98],'logprob':-0.5}]}]"

static void probabilities_are_those_of_the_text(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_ollama_generate, true);
    write_probable(&w, KIN_REPLY_REASONING, "hm");
    write_probable(&w, KIN_REPLY_TEXT, "a");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_lines(&w, "[{" HEAD ",'response':'','thinking':'hm','done':false},{" HEAD ",'response':'a','done':false," PROBS "},"
                     "{" HEAD ",'response':''," END("stop") "}]");
    begin_writing(&w, &kin_format_ollama_generate, false);
    write_probable(&w, KIN_REPLY_TEXT, "a");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_document(&w, "{" HEAD ",'response':'a'," PROBS "," END("stop") "}");
}

// Returns the last line, completed with the texts of the lines before it.
static json_t *built_from(json_t *lines) {
    json_t *last = json_deep_copy(json_array_get(lines, json_array_size(lines) - 1)), *message = json_object_get(last, "message"),
           *line;
    size_t i;
    json_array_foreach(lines, i, line) {
        json_t *said = json_object_get(line, "message");
        add_text_to(message, "content", json_object_get(said, "content"));
        if (json_object_get(said, "thinking")) add_text_to(message, "thinking", json_object_get(said, "thinking"));
        if (!json_object_get(said, "tool_calls")) continue;
        if (!json_object_get(message, "tool_calls")) json_object_set_new(message, "tool_calls", json_array());
        json_array_extend(json_object_get(message, "tool_calls"), json_object_get(said, "tool_calls"));
    }
    json_decref(lines);
    return last;
}
#define built_from(...) FROM_TEST(built_from(__VA_ARGS__))

static void a_stream_builds_the_document(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        written stream, whole;
        begin_writing(&stream, &kin_format_ollama_chat, true);
        begin_writing(&whole, &kin_format_ollama_chat, false);
        write_random(&stream, seed);
        write_random(&whole, seed);
        json_t *built = built_from(lines_of(&stream.out)), *document = read_json(whole.out.at, whole.out.len);
        if (!json_equal(built, document)) fail_msg("seed %d", (int)seed);
        json_decref(built);
        json_decref(document);
        drop_writing(&stream);
        drop_writing(&whole);
    }
}

static void an_error_is_a_sentence(void **state) {
    (void)state;
    written w;
    kin_api_error err;
    kin_api_error_set(&err, 500, NULL, "lost");
    expect_error(&kin_format_ollama_chat, err, "{'error':'lost'}");
    begin_writing(&w, &kin_format_ollama_generate, true);
    (w.format->fail)(w.writer, &err, &w.out); // fail() is a macro of cmocka
    expect_lines(&w, "[{'error':'lost'}]");
}

static void models_are_shown(void **state) {
    (void)state;
    kin_text_buffer out = {0};
    kin_model_card m = {.id = "demo", .arch = "llama", .ftype = "Q4_0", .digest = "ab", .chat_template = "t", .created_s = 1000};
    m.n_bytes = 7000;
    m.n_params = 8030261248;
    m.n_layer = 2, m.n_embd = 64, m.n_vocab = 512, m.n_ctx = 1024, m.n_ctx_train = 2048;
    m.has_tools = m.has_embeddings = true;
    static const char details[] = "'details':{'parent_model':'','format':'gguf','family':'llama','families':['llama'],"
                                  "'parameter_size':'8.0B','quantization_level':'Q4_0'}";
    char want[1024];
    kin_ollama_put_tags(&m, 1, &out);
    snprintf(want, sizeof want,
             "{'models':[{'name':'demo','model':'demo','size':7000,'digest':'ab',%s,'modified_at':'1970-01-01T00:16:40Z'}]}",
             details);
    expect_json(read_json(out.at, out.len), want);
    out.len = 0;
    kin_ollama_put_ps(&m, 1, &out);
    snprintf(want, sizeof want,
             "{'models':[{'name':'demo','model':'demo','size':7000,'digest':'ab',%s,"
             "'expires_at':'9999-12-31T23:59:59Z','size_vram':0,'context_length':1024}]}",
             details);
    expect_json(read_json(out.at, out.len), want);
    out.len = 0;
    kin_ollama_put_show(&m, &out);
    snprintf(want, sizeof want,
             "{'modelfile':'','parameters':'','template':'t',%s,'model_info':{'general.architecture':'llama',"
             "'general.parameter_count':8030261248,'llama.block_count':2,'llama.context_length':2048,"
             "'llama.embedding_length':64,'llama.vocab_size':512},'capabilities':['completion','tools','embedding'],"
             "'modified_at':'1970-01-01T00:16:40Z'}",
             details);
    expect_json(read_json(out.at, out.len), want);
    out.len = 0;
    kin_ollama_put_version(&out);
    expect_json(read_json(out.at, out.len), "{'version':'" KIN_OLLAMA_VERSION "'}");
    kin_text_fini(&out);
}

static void embeddings_are_lists_of_numbers(void **state) {
    (void)state;
    static const float vectors[] = {0.5f, 1, -2, 0.25f};
    kin_ollama_embeddings e = {.model = "demo", .vectors = vectors, .n = 2, .n_embd = 2, .n_prompt = 5, .ms = 1.5};
    kin_text_buffer out = {0};
    kin_ollama_put_embed(&e, &out);
    expect_json(read_json(out.at, out.len), "{'model':'demo','embeddings':[[0.5,1.0],[-2.0,0.25]],'total_duration':1500000,"
                                            "'load_duration':0,'prompt_eval_count':5}");
    out.len = 0;
    kin_ollama_put_embeddings(&e, &out);
    expect_json(read_json(out.at, out.len), "{'embedding':[0.5,1.0]}");
    kin_text_fini(&out);
}

static void a_model_is_unloaded_after_no_time(void **state) {
    (void)state;
    static const struct {
        const char *keep_alive;
        bool lets_go;
    } cases[] = {{"0", true},       {"'0'", true},     {"'0s'", true},  {"'0h0m0s'", true},  {"'0.0m'", true},
                 {"'0h5m'", false}, {"'0.5h'", false}, {"'5m'", false}, {"'0m0.5s'", false}, {"-1", false},
                 {"'-1m'", false},  {"'m'", false},    {"''", false},   {"null", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "[%s]", cases[i].keep_alive);
        for (char *c = text; *c; c++) *c = *c == '\'' ? '"' : *c;
        json_t *list = read_json(text, strlen(text));
        if (kin_ollama_lets_go(json_array_get(list, 0)) != cases[i].lets_go) fail_msg("%s", cases[i].keep_alive);
        json_decref(list);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_streams_unless_told_otherwise),
        cmocka_unit_test(options_are_renamed_or_passed_on),
        cmocka_unit_test(formats_and_thinking_are_mapped),
        cmocka_unit_test(results_find_their_calls),
        cmocka_unit_test(a_prompt_is_a_chat_and_a_raw_one_is_not),
        cmocka_unit_test(without_a_prompt_only_the_model_is_wanted),
        cmocka_unit_test(what_is_embedded_has_two_names),
        cmocka_unit_test(what_is_wrong_or_not_there_is_named_by_its_path),
        cmocka_unit_test(a_chat_is_a_line_for_each_piece),
        cmocka_unit_test(a_document_of_a_chat_holds_all),
        cmocka_unit_test(a_call_that_is_cut_off_is_none),
        cmocka_unit_test(what_is_generated_is_a_response),
        cmocka_unit_test(probabilities_are_those_of_the_text),
        cmocka_unit_test(a_stream_builds_the_document),
        cmocka_unit_test(an_error_is_a_sentence),
        cmocka_unit_test(a_model_is_unloaded_after_no_time),
        cmocka_unit_test(models_are_shown),
        cmocka_unit_test(embeddings_are_lists_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
