// Answers of OpenAI's chat completions and completions: streams and documents, with the order and shape that clients rely on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>

#include "serve/apis/openai/openai_json.h"
#include "serve/request/request_chat.h"
#include "serve/request/request_prompts.h"
#include "tests/api_case.h"
#include "tests/place.h"

#define MESSAGES "'messages':[{'role':'user','content':'Hi'}]"
#define TIMES                                                                                                                    \
    "'timings':{'cache_n':4,'prompt_n':5,'prompt_ms':2.0,'prompt_per_token_ms':0.4,'prompt_per_second':2500.0,"                  \
    "'predicted_n':7,'predicted_ms':3.0,'predicted_per_token_ms':0.5,'predicted_per_second':2000.0}"
#define USAGE                                                                                                                    \
    "'usage':{'prompt_tokens':9,'completion_tokens':7,'total_tokens':16,'prompt_tokens_details':{'cached_tokens':4},"            \
    "'completion_tokens_details':{'reasoning_tokens':2}}"
#define ROLE(i) "{'choices':[{'index':" #i ",'delta':{'role':'assistant','content':null},'finish_reason':null}]}"
#define CHUNK(i, delta) "{'choices':[{'index':" #i ",'delta':" delta ",'finish_reason':null}]}"
#define LAST(i, reason) "{'choices':[{'index':" #i ",'delta':{},'finish_reason':'" reason "'}]," TIMES "}"

static void begin_chat(written *w, const char *fields) {
    char body[512];
    snprintf(body, sizeof body, "{" MESSAGES "%s%s}", fields[0] ? "," : "", fields);
    begin_answer(w, &kin_format_chat, kin_request_from_chat, body);
}
#define begin_chat(...) FROM_TEST(begin_chat(__VA_ARGS__))

static void begin_completion(written *w, const char *fields) {
    char body[512];
    snprintf(body, sizeof body, "{%s}", fields);
    begin_answer(w, &kin_format_completions, kin_request_from_completions, body);
}
#define begin_completion(...) FROM_TEST(begin_completion(__VA_ARGS__))

// Writes text unless it is NULL, and, if `piece` is set, a token with probabilities, in which it and "x" are the most likely.
static void write_token(written *w, int choice, const char *text, const char *piece, bool is_prompt) {
    kin_reply_event event = {.kind = KIN_REPLY_TEXT};
    kin_token_prob top[2] = {{7, {piece, piece ? strlen(piece) : 0}, -0.5f}, {8, {"x", 1}, -INFINITY}};
    kin_token_probs probs = {top[0], top, 2};
    int32_t token = 7;
    kin_delta delta = {.choice = choice, .tokens = &token, .probs = piece ? &probs : NULL, .n_tokens = piece ? 1 : 0};
    if (text) event.text = (kin_str){text, strlen(text)};
    if (is_prompt) probs.chosen.logprob = NAN;
    delta.events = &event;
    delta.n_events = text ? 1 : 0;
    delta.is_prompt = is_prompt;
    delta.so_far = (kin_timings){.n_prompt = 9, .n_cached = 4, .n_generated = 7, .prompt_ms = 2, .generated_ms = 3};
    w->format->delta(w->writer, &delta, &w->out);
}

// Writes a tool call for which the model gave no id.
static void write_own_call(written *w, int tool, const char *name, const char *arguments, const char *more) {
    kin_reply_event events[] = {{.kind = KIN_REPLY_TOOL_BEGIN, .tool = tool, .name = {name, strlen(name)}},
                                {.kind = KIN_REPLY_TOOL_ARGUMENTS, .tool = tool, .text = {arguments, strlen(arguments)}},
                                {.kind = KIN_REPLY_TOOL_ARGUMENTS, .tool = tool, .text = {more, strlen(more)}},
                                {.kind = KIN_REPLY_TOOL_END, .tool = tool}};
    kin_delta delta = {.events = events, .n_events = 4};
    w->format->delta(w->writer, &delta, &w->out);
}

static void write_text(written *w, int choice, const char *text) {
    write_token(w, choice, text, NULL, false);
}

// Checks the fields that all chunks share, then removes them.
static void strip(json_t *object, const char *id, const char *type) {
    assert_string_equal(json_string_value(json_object_get(object, "id")), id);
    assert_string_equal(json_string_value(json_object_get(object, "object")), type);
    assert_string_equal(json_string_value(json_object_get(object, "model")), "demo");
    assert_string_equal(json_string_value(json_object_get(object, "system_fingerprint")), "kin");
    assert_int_equal(json_integer_value(json_object_get(object, "created")), 1000);
    static const char *const common[] = {"id", "object", "model", "system_fingerprint", "created"};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) json_object_del(object, common[i]);
}

static void expect_chunks(written *w, const char *want) {
    bool is_done, is_chat = w->format == &kin_format_chat;
    json_t *chunks = chunks_of(&w->out, &is_done), *chunk;
    size_t i;
    assert_true(is_done);
    json_array_foreach(chunks, i, chunk) {
        strip(chunk, is_chat ? "chatcmpl-ID" : "cmpl-ID", is_chat ? "chat.completion.chunk" : "text_completion");
    }
    expect_json(chunks, want);
    drop_writing(w);
}
#define expect_chunks(...) FROM_TEST(expect_chunks(__VA_ARGS__))

static json_t *parse_document(written *w) {
    json_t *document = read_json(w->out.at, w->out.len);
    bool is_chat = w->format == &kin_format_chat;
    strip(document, is_chat ? "chatcmpl-ID" : "cmpl-ID", is_chat ? "chat.completion" : "text_completion");
    drop_writing(w);
    return document;
}
#define parse_document(...) FROM_TEST(parse_document(__VA_ARGS__))

// ---- chat: streams

static void a_stream_begins_with_the_role_and_ends_with_the_reason(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'stream':true");
    write_event(&w, KIN_REPLY_TEXT, "Good");
    write_event(&w, KIN_REPLY_TEXT, "");
    write_event(&w, KIN_REPLY_TEXT, " day");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_chunks(&w, "[" ROLE(0) "," CHUNK(0, "{'content':'Good'}") "," CHUNK(0, "{'content':' day'}") "," LAST(0, "stop") "]");
}

static void each_end_has_its_reason(void **state) {
    (void)state;
    static const char *const reasons[] = {
        [KIN_FINISH_EOS] = "stop", [KIN_FINISH_STOP_WORD] = "stop", [KIN_FINISH_LENGTH] = "length"};
    for (int i = 0; i < 3; i++) {
        written w;
        char want[1024];
        begin_chat(&w, "'stream':true");
        end_writing(&w, (kin_finish_reason)i, "x");
        snprintf(want, sizeof want, "[" ROLE(0) "," LAST(0, "%s") "]", reasons[i]);
        expect_chunks(&w, want);
    }
}

static void usage_comes_in_a_chunk_without_choices_if_it_is_wanted(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'stream':true,'stream_options':{'include_usage':true}");
    write_event(&w, KIN_REPLY_TEXT, "a");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_chunks(&w,
                  "[" ROLE(0) "," CHUNK(
                      0, "{'content':'a'}") ","
                                            "{'choices':[{'index':0,'delta':{},'finish_reason':'length'}]},{'choices':[]," USAGE
                                            "," TIMES "}]");
}

#define THINKS CHUNK(0, "{'reasoning_content':'hm'}")
#define CALL(i, name)                                                                                                            \
    CHUNK(0, "{'tool_calls':[{'index':" #i ",'id':'%s','type':'function','function':{'name':'" name "','arguments':''}}]}")
#define MORE(i, text) CHUNK(0, "{'tool_calls':[{'index':" #i ",'function':{'arguments':'" text "'}}]}")

static void reasoning_and_tool_calls_are_streamed(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'stream':true");
    write_event(&w, KIN_REPLY_REASONING, "hm");
    write_own_call(&w, 0, "f", "{\"x\":", "1}");
    write_own_call(&w, 1, "g", "{}", "");
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    // The ids differ and have the form that Mistral's templates accept.
    bool is_done;
    json_t *chunks = chunks_of(&w.out, &is_done), *chunk;
    const char *ids[2] = {NULL};
    int n_ids = 0;
    size_t i;
    json_array_foreach(chunks, i, chunk) {
        json_t *delta_json = json_object_get(json_array_get(json_object_get(chunk, "choices"), 0), "delta");
        const char *id = json_string_value(json_object_get(json_array_get(json_object_get(delta_json, "tool_calls"), 0), "id"));
        if (id) ids[n_ids++] = id;
    }
    assert_int_equal(n_ids, 2);
    assert_string_not_equal(ids[0], ids[1]);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(strlen(ids[k]), 9);
        for (const char *c = ids[k]; *c; c++) assert_true(isalnum((unsigned char)*c));
    }
    char want[2048];
    snprintf(want, sizeof want,
             "[" ROLE(0) "," THINKS "," CALL(0, "f") "," MORE(0, "{\\u0022x\\u0022:") "," MORE(0, "1}") "," CALL(1, "g") "," MORE(
                 1, "{}") "," LAST(0, "tool_calls") "]",
             ids[0], ids[1]);
    expect_chunks(&w, want);
    json_decref(chunks);
}

static void a_model_that_names_its_calls_gets_the_names_back(void **state) {
    (void)state;
    static const char *const own[] = {"abcDEF123", "bad id"};
    for (int i = 0; i < 4; i++) {
        written w;
        bool is_stream = i >= 2, is_done;
        kin_reply_event events[] = {{.kind = KIN_REPLY_TOOL_BEGIN, .name = {"f", 1}, .id = {own[i % 2], strlen(own[i % 2])}},
                                    {.kind = KIN_REPLY_TOOL_END}};
        kin_delta delta = {.events = events, .n_events = 2};
        begin_chat(&w, is_stream ? "'stream':true" : "");
        w.format->delta(w.writer, &delta, &w.out);
        end_writing(&w, KIN_FINISH_LENGTH, "");
        json_t *answer = is_stream ? chunks_of(&w.out, &is_done) : read_json(w.out.at, w.out.len);
        json_t *choice = json_array_get(json_object_get(is_stream ? json_array_get(answer, 1) : answer, "choices"), 0);
        json_t *calls = json_object_get(json_object_get(choice, is_stream ? "delta" : "message"), "tool_calls");
        const char *id = json_string_value(json_object_get(json_array_get(calls, 0), "id"));
        assert_non_null(id);
        assert_int_equal(strlen(id), 9);
        assert_int_equal(strcmp(id, own[0]) == 0, i % 2 == 0);
        json_decref(answer);
        drop_writing(&w);
    }
}

static void a_call_that_was_made_is_the_reason_unless_the_length_is(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "");
    write_call(&w, "f", "{}", NULL);
    end_writing(&w, KIN_FINISH_EOS, "");
    json_t *document = parse_document(&w);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(document, "choices"), 0), "finish_reason")),
        "tool_calls");
    json_decref(document);
    begin_chat(&w, "");
    write_event(&w, KIN_REPLY_TOOL_BEGIN, "f");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    document = parse_document(&w);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(document, "choices"), 0), "finish_reason")), "length");
    // A call without any byte of arguments would look like a call without arguments, so it is omitted.
    const json_t *message = json_object_get(json_array_get(json_object_get(document, "choices"), 0), "message");
    assert_null(json_object_get(message, "tool_calls"));
    json_decref(document);
    begin_chat(&w, "'stream':true");
    write_event(&w, KIN_REPLY_TOOL_BEGIN, "f");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    assert_null(strstr(w.out.at, "tool_calls"));
    drop_writing(&w);
}

static void choices_interleave_by_their_index(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'stream':true,'n':2,'stream_options':{'include_usage':true}");
    write_text(&w, 1, "b");
    write_text(&w, 0, "a");
    finish_choice(&w, 1, KIN_FINISH_EOS, "");
    write_text(&w, 0, "c");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_chunks(
        &w, "[" ROLE(0) "," ROLE(1) "," CHUNK(1, "{'content':'b'}") "," CHUNK(
                0, "{'content':'a'}") ","
                                      "{'choices':[{'index':1,'delta':{},'finish_reason':'stop'}]}," CHUNK(
                                          0, "{'content':'c'}") ","
                                                                "{'choices':[{'index':0,'delta':{},'finish_reason':'length'}]},"
                                                                // the prompt counts once
                                                                "{'choices':[],'usage':{'prompt_tokens':9,'completion_tokens':14,"
                                                                "'total_tokens':23,"
                                                                "'prompt_tokens_details':{'cached_tokens':4},'completion_tokens_"
                                                                "details':{'reasoning_tokens':4}},"
                                                                "'timings':{'cache_n':4,'prompt_n':5,'prompt_ms':4.0,'prompt_per_"
                                                                "token_ms':0.8,'prompt_per_second':1250.0,"
                                                                "'predicted_n':14,'predicted_ms':6.0,'predicted_per_token_ms':0."
                                                                "5,'predicted_per_second':2000.0}}]");
}

static void progress_and_timings_come_if_they_are_wanted(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'stream':true,'return_progress':true,'timings_per_token':true");
    w.format->progress(w.writer, 0, 5, 4, 9, 1.5, &w.out);
    write_text(&w, 0, "a");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_chunks(&w, "[" ROLE(0) ",{'choices':[{'index':0,'delta':{},'finish_reason':null}],"
                                  "'prompt_progress':{'total':9,'cache':4,'processed':5,'time_ms':1}},"
                                  "{'choices':[{'index':0,'delta':{'content':'a'},'finish_reason':null}]," TIMES
                                  "}," LAST(0, "stop") "]");
    begin_chat(&w, "'stream':true");
    w.format->progress(w.writer, 0, 5, 4, 9, 1.5, &w.out);
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_chunks(&w, "[" ROLE(0) "," LAST(0, "stop") "]");
}

#define PROB(token, bytes) "{'id':7,'token':'" token "','bytes':[" bytes "],'logprob':-0.5"
#define TOP_X "{'id':8,'token':'x','bytes':[120],'logprob':-9999.0}"
#define PROBS(token, bytes) PROB(token, bytes) ",'top_logprobs':[" PROB(token, bytes) "}," TOP_X "]}"

static void probabilities_wait_for_the_next_chunk_of_their_choice(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'stream':true,'logprobs':true,'top_logprobs':2");
    write_token(&w, 0, NULL, "\xc3", false); // half a character
    write_token(&w, 0, "\xc3\xa9", "\xa9", false);
    write_call(&w, "f", "{}", NULL);
    write_token(&w, 0, NULL, "!", false);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    bool is_done;
    json_t *chunks = chunks_of(&w.out, &is_done), *choice;
#define CHOICE(i) json_array_get(json_object_get(json_array_get(chunks, i), "choices"), 0)
    choice = CHOICE(1);
    expect_json(json_incref(json_object_get(choice, "delta")), "{'content':'\xc3\xa9'}");
    expect_json(json_incref(json_object_get(choice, "logprobs")),
                "{'content':[" PROBS("\xef\xbf\xbd", "195") "," PROBS("\xef\xbf\xbd", "169") "],'refusal':null}");
    assert_null(json_object_get(CHOICE(2), "logprobs"));
    expect_json(json_incref(json_object_get(CHOICE(4), "logprobs")), "{'content':[" PROBS("!", "33") "],'refusal':null}");
    expect_json(json_incref(json_object_get(CHOICE(4), "finish_reason")), "'tool_calls'");
    json_decref(chunks);
    drop_writing(&w);
}

// ---- chat: documents

static void a_document_has_everything(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'logprobs':true,'n':2");
    write_event(&w, KIN_REPLY_REASONING, "h");
    write_event(&w, KIN_REPLY_REASONING, "m");
    write_token(&w, 0, "a", "a", false);
    write_event(&w, KIN_REPLY_TEXT, "b");
    finish_choice(&w, 1, KIN_FINISH_LENGTH, "");
    assert_int_equal(w.out.len, 0);
    end_writing(&w, KIN_FINISH_EOS, "");
    json_t *document = parse_document(&w);
    json_object_del(document, "timings");
    expect_json(document,
                "{'choices':[{'index':0,'message':{'role':'assistant','content':'ab','refusal':null,'reasoning_content':'hm'},"
                "'logprobs':{'content':[" PROBS("a", "97") "],'refusal':null},'finish_reason':'stop'},"
                                                           "{'index':1,'message':{'role':'assistant','content':'','refusal':null}"
                                                           ",'logprobs':null,'finish_reason':'length'}],"
                                                           "'usage':{'prompt_tokens':9,'completion_tokens':14,'total_tokens':23,'"
                                                           "prompt_tokens_details':{'cached_tokens':4},"
                                                           "'completion_tokens_details':{'reasoning_tokens':4}}}");
}

static void a_document_of_calls_has_no_content(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "");
    write_own_call(&w, 0, "f", "{\"x\":", "1}");
    write_own_call(&w, 1, "g", "{}", "");
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    json_t *document = parse_document(&w), *call;
    size_t i;
    json_t *message = json_object_get(json_array_get(json_object_get(document, "choices"), 0), "message");
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        assert_int_equal(json_string_length(json_object_get(call, "id")), 9);
        json_object_del(call, "id");
    }
    expect_json(json_incref(message), "{'role':'assistant','content':null,'refusal':null,'tool_calls':["
                                      "{'type':'function','function':{'name':'f','arguments':'{\\u0022x\\u0022:1}'}},"
                                      "{'type':'function','function':{'name':'g','arguments':'{}'}}]}");
    json_decref(document);
}

// Asserts that every key of llama-server's answer exists, with a value of the same type.
static void expect_shape(const json_t *got, const json_t *sample, const char *path) {
    const char *key;
    json_t *value;
    bool same = json_is_number(sample) ? json_is_number(got) : json_typeof(got) == json_typeof(sample);
    if (!got || !same) fail_msg("%s: not there, or of another type", path);
    json_object_foreach((json_t *)sample, key, value) {
        char below[256];
        snprintf(below, sizeof below, "%s/%s", path, key);
        expect_shape(json_object_get(got, key), value, below);
    }
    if (json_is_array(sample) && json_array_size(sample) > 0)
        expect_shape(json_array_get(got, 0), json_array_get(sample, 0), path);
}

static void expect_sample(written *w, const char *sample) {
    json_t *document = read_json(w->out.at, w->out.len), *wanted = json_of(sample);
    expect_shape(document, wanted, "");
    json_decref(document);
    json_decref(wanted);
    drop_writing(w);
}
#define expect_sample(...) FROM_TEST(expect_sample(__VA_ARGS__))

static void documents_have_the_shape_of_llama_servers(void **state) {
    (void)state;
    written w;
    begin_chat(&w, "'logprobs':true");
    write_token(&w, 0, "a", "a", false);
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_sample(
        &w, "{'choices':[{'finish_reason':'length','index':0,'message':{'role':'assistant','content':', and a'},'logprobs':"
            "{'content':[{'id':1,'token':',','bytes':[34],'logprob':-1.6017764806747437,'top_logprobs':[{'id':1,'token':','"
            ",'bytes':[34],'logprob':-1.6017764806747437}]}]}}],'created':1795319468,'model':'kin-demo',"
            "'system_fingerprint':'b11669-Debian','object':'chat.completion','usage':{'completion_tokens':4,'prompt_tokens':39,"
            "'total_tokens':43,'prompt_tokens_details':{'cached_tokens':0}},'id':'chatcmpl-dYTv76UXIObxuWMOoNSYmh7nTGhg9sX3',"
            "'timings':{'cache_n':0,'prompt_n':39,'prompt_ms':10.469,'prompt_per_token_ms':0.2684358974358974,"
            "'prompt_per_second':3725.284172318273,'predicted_n':4,'predicted_ms':1.838,"
            "'predicted_per_token_ms':0.6126666666666667,'predicted_per_second':1632.208922742111}}");
    begin_completion(&w, "'prompt':'Once','logprobs':1");
    write_token(&w, 0, "a", "a", false);
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_sample(&w, "{'choices':[{'text':' upon a','index':0,'logprobs':{},'finish_reason':'length'}],'created':1795319468,"
                      "'model':'kin-demo','system_fingerprint':'b11669-Debian','object':'text_completion','usage':"
                      "{'completion_tokens':2,'prompt_tokens':2,'total_tokens':4,'prompt_tokens_details':{'cached_tokens':1}},"
                      "'id':'chatcmpl-sSqaslbyunjclj7ECWbh1MdCfxUQkJ8U','timings':{'cache_n':1,'prompt_n':1,'prompt_ms':1.56,"
                      "'prompt_per_token_ms':1.56,'prompt_per_second':641.025641025641,'predicted_n':2,'predicted_ms':1.238,"
                      "'predicted_per_token_ms':1.238,'predicted_per_second':807.7544426494346}}");
}

static void drafts_have_llama_servers_names(void **state) {
    (void)state;
    kin_timings t = {
        .n_generated = 4, .generated_ms = 3, .drafts = {.n_passes = 4, .n_written = 10, .drafted = {8}, .accepted = {6}}};
    expect_json(kin_timings_json(&t, 1),
                "{'cache_n':0,'prompt_n':0,'prompt_ms':0.0,'prompt_per_token_ms':0.0,'prompt_per_second':0.0,'predicted_n':4,"
                "'predicted_ms':3.0,'predicted_per_token_ms':1.0,'predicted_per_second':1000.0,'draft_n':8,'draft_n_accepted':6,"
                "'pass_n':4,'tokens_per_pass':2.5,'draft_sources':{'ngram':{'draft_n':8,'draft_n_accepted':6}}}");
}

// ---- completions

#define TEXT(i, text) "{'choices':[{'text':'" text "','index':" #i ",'logprobs':null,'finish_reason':null}]}"
#define ENDS(i, reason, rest) "{'choices':[{'text':'','index':" #i ",'logprobs':null,'finish_reason':'" reason "'}]" rest "}"

static void completions_stream_text_and_end_with_usage(void **state) {
    (void)state;
    written w;
    begin_completion(&w, "'prompt':'Once','stream':true");
    write_text(&w, 0, " upon");
    write_text(&w, 0, "");
    end_writing(&w, KIN_FINISH_STOP_WORD, "x");
    expect_chunks(&w, "[" TEXT(0, " upon") "," ENDS(0, "stop", "," USAGE "," TIMES) "]");
    begin_completion(&w, "'prompt':'Once','stream':true,'stream_options':{'include_usage':true}");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_chunks(&w, "[" ENDS(0, "length", "") ",{'choices':[]," USAGE "," TIMES "}]");
}

static void each_prompt_has_its_choices(void **state) {
    (void)state;
    written w;
    begin_completion(&w, "'prompt':['a','b'],'n':2,'echo':true");
    assert_int_equal(w.context.n_choices, 4);
    write_text(&w, 3, "3");
    for (int i = 1; i < 4; i++) finish_choice(&w, i, KIN_FINISH_EOS, "");
    end_writing(&w, KIN_FINISH_EOS, "");
    json_t *document = parse_document(&w);
    json_object_del(document, "timings");
    expect_json(document, "{'choices':[{'text':'Once','index':0,'logprobs':null,'finish_reason':'stop'},"
                          "{'text':'Once','index':1,'logprobs':null,'finish_reason':'stop'},"
                          "{'text':'Once','index':2,'logprobs':null,'finish_reason':'stop'},"
                          "{'text':'Once3','index':3,'logprobs':null,'finish_reason':'stop'}],"
                          // two prompts
                          "'usage':{'prompt_tokens':18,'completion_tokens':28,'total_tokens':46,'prompt_tokens_details':"
                          "{'cached_tokens':8},'completion_tokens_details':{'reasoning_tokens':8}}}");
}

static void usage_comes_once_with_the_choice_that_ends_last(void **state) {
    (void)state;
    written w;
    begin_completion(&w, "'prompt':'Once','n':2,'stream':true");
    finish_choice(&w, 1, KIN_FINISH_EOS, "");
    end_writing(&w, KIN_FINISH_EOS, "");
    bool is_done;
    json_t *chunks = chunks_of(&w.out, &is_done), *usage = json_object_get(json_array_get(chunks, 1), "usage");
    assert_null(json_object_get(json_array_get(chunks, 0), "usage"));
    assert_non_null(json_object_get(json_array_get(chunks, 0), "timings"));
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), 9);
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 14);
    json_decref(chunks);
    drop_writing(&w);
}

static void probabilities_have_the_shape_of_completions(void **state) {
    (void)state;
    written w;
    begin_completion(&w, "'prompt':'Once','logprobs':2,'echo':true");
    write_token(&w, 0, NULL, "<s>", true); // not in the text
    write_token(&w, 0, NULL, " Once", true);
    write_token(&w, 0, NULL, "\xc3", false);
    write_token(&w, 0, "\xc3\xa9", "\xa9", false);
    write_token(&w, 0, "x", "x", false);
    end_writing(&w, KIN_FINISH_EOS, "");
    json_t *document = parse_document(&w);
    expect_json(json_incref(json_object_get(document, "choices")),
                "[{'text':'Once\xc3\xa9x','index':0,'logprobs':{'tokens':['<s>',' Once','bytes:\\\\xc3','bytes:\\\\xa9','x'],"
                "'token_logprobs':[null,null,-0.5,-0.5,-0.5],"
                "'top_logprobs':[null,null,{'bytes:\\\\xc3':-0.5,'x':-9999.0},{'bytes:\\\\xa9':-0.5,'x':-9999.0},{'x':-0.5}],"
                "'text_offset':[0,0,4,5,5]},'finish_reason':'stop'}]");
    json_decref(document);
}

// A text of one token.
static void write_likely(written *w, int choice, const char *text, float logprob) {
    kin_reply_event event = {.kind = KIN_REPLY_TEXT, .text = {text, strlen(text)}};
    kin_token_probs probs = {.chosen = {7, event.text, logprob}};
    int32_t token = 7;
    kin_delta delta = {.choice = choice, .events = &event, .n_events = 1, .tokens = &token, .probs = &probs, .n_tokens = 1};
    w->format->delta(w->writer, &delta, &w->out);
}

static void the_best_of_a_prompts_texts_have_the_likeliest_tokens(void **state) {
    (void)state;
    static const float logprobs[] = {-3, -1, -2, -2, -2, -5};
    static const char *const texts[] = {"a", "b", "", "d", "e", "f"};
    written w;
    begin_completion(&w, "'prompt':['x','y'],'n':2,'best_of':3");
    for (int i = 0; i < 6; i++) write_likely(&w, i, texts[i], logprobs[i]);
    write_likely(&w, 0, "aa", -0.5f); // -1.75 a token
    for (int i = 0; i < 6; i++) finish_choice(&w, i, KIN_FINISH_EOS, "");
    w.format->end(w.writer, &w.out);
    json_t *document = parse_document(&w);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(document, "usage"), "completion_tokens")), 42);
    expect_json(json_incref(json_object_get(document, "choices")),
                "[{'index':0,'text':'b','logprobs':null,'finish_reason':'stop'},"
                "{'index':1,'text':'aaa','logprobs':null,'finish_reason':'stop'},"
                "{'index':2,'text':'d','logprobs':null,'finish_reason':'stop'},"
                "{'index':3,'text':'e','logprobs':null,'finish_reason':'stop'}]");
    json_decref(document);
}

static void an_echo_is_in_front_of_the_streams_first_text(void **state) {
    (void)state;
    written w;
    begin_completion(&w, "'prompt':'Once','stream':true,'echo':true,'stream_options':{'include_usage':true}");
    write_text(&w, 0, " upon");
    write_text(&w, 0, " a");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_chunks(&w, "[" TEXT(0, "Once upon") "," TEXT(0, " a") "," ENDS(0, "stop", "") ",{'choices':[]," USAGE "," TIMES "}]");
    begin_completion(&w, "'prompt':'Once','max_tokens':0,'echo':true");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    json_t *document = parse_document(&w);
    expect_json(json_incref(json_object_get(document, "choices")),
                "[{'text':'Once','index':0,'logprobs':null,'finish_reason':'length'}]");
    json_decref(document);
}

// ---- errors, idle streams

static void errors_have_openais_fields_and_llama_servers(void **state) {
    (void)state;
    kin_api_error err;
    kin_api_error_set(&err, 400, "temperature", "no \xff");
    expect_error(&kin_format_chat, err,
                 "{'error':{'code':400,'message':'no \xef\xbf\xbd','type':'invalid_request_error','param':'temperature'}}");
    kin_api_error_set(&err, 404, NULL, "no");
    err.code = "model_not_found";
    expect_error(&kin_format_completions, err,
                 "{'error':{'code':'model_not_found','message':'no','type':'not_found_error','param':null}}");
    expect_error(
        &kin_format_native,
        (kin_api_error){.status = 400, .type = "exceed_context_size_error", .message = "x", .n_prompt = 90, .n_ctx = 50},
        "{'error':{'code':400,'message':'x','type':'exceed_context_size_error','param':null,'n_prompt_tokens':90,'n_ctx':50}}");
}

static void an_idle_stream_gets_comments_and_a_broken_one_an_error(void **state) {
    (void)state;
    written w;
    bool is_done;
    kin_api_error err;
    begin_chat(&w, "'stream':true");
    kin_text_print(&w.out, "%s", w.format->ping);
    assert_string_equal(w.out.at + w.out.len - 3, ":\n\n");
    kin_api_error_set(&err, 503, NULL, "lost");
    (w.format->fail)(w.writer, &err, &w.out); // fail() is a macro of cmocka
    json_t *chunks = chunks_of(&w.out, &is_done);
    assert_false(is_done);
    expect_json(json_incref(json_array_get(chunks, 1)),
                "{'error':{'code':503,'message':'lost','type':'unavailable_error','param':null}}");
    json_decref(chunks);
    drop_writing(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_have_llama_servers_names),
        cmocka_unit_test(a_stream_begins_with_the_role_and_ends_with_the_reason),
        cmocka_unit_test(each_end_has_its_reason),
        cmocka_unit_test(usage_comes_in_a_chunk_without_choices_if_it_is_wanted),
        cmocka_unit_test(reasoning_and_tool_calls_are_streamed),
        cmocka_unit_test(a_model_that_names_its_calls_gets_the_names_back),
        cmocka_unit_test(a_call_that_was_made_is_the_reason_unless_the_length_is),
        cmocka_unit_test(choices_interleave_by_their_index),
        cmocka_unit_test(progress_and_timings_come_if_they_are_wanted),
        cmocka_unit_test(probabilities_wait_for_the_next_chunk_of_their_choice),
        cmocka_unit_test(a_document_has_everything),
        cmocka_unit_test(a_document_of_calls_has_no_content),
        cmocka_unit_test(documents_have_the_shape_of_llama_servers),
        cmocka_unit_test(completions_stream_text_and_end_with_usage),
        cmocka_unit_test(each_prompt_has_its_choices),
        cmocka_unit_test(usage_comes_once_with_the_choice_that_ends_last),
        cmocka_unit_test(probabilities_have_the_shape_of_completions),
        cmocka_unit_test(the_best_of_a_prompts_texts_have_the_likeliest_tokens),
        cmocka_unit_test(an_echo_is_in_front_of_the_streams_first_text),
        cmocka_unit_test(errors_have_openais_fields_and_llama_servers),
        cmocka_unit_test(an_idle_stream_gets_comments_and_a_broken_one_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
