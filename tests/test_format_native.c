// Answers of llama.cpp's completion API: streams, documents, several prompts, selected fields.
#include "serve/request/request_prompts.h"
#include "tests/api_case.h"
#include "tests/place.h"

#define TIMES                                                                                                                    \
    "'timings':{'cache_n':4,'prompt_n':5,'prompt_ms':2.0,'prompt_per_token_ms':0.4,'prompt_per_second':2500.0,"                  \
    "'predicted_n':7,'predicted_ms':3.0,'predicted_per_token_ms':0.5,'predicted_per_second':2000.0}"
#define WHOLE(i, content, tokens, rest)                                                                                          \
    "{'index':" #i ",'content':'" content "','tokens':" tokens ",'id_slot':0,'stop':true,'model':'demo','tokens_predicted':7,"   \
    "'tokens_evaluated':9,'prompt':'Once','truncated':false,'tokens_cached':15," TIMES "," rest "}"
#define PIECE(content, tokens, n)                                                                                                \
    "{'index':0,'content':'" content "','tokens':" tokens ",'stop':false,'id_slot':-1,'tokens_predicted':" #n                    \
    ",'tokens_evaluated':9"

static void begin(written *w, const char *fields) {
    char body[512];
    snprintf(body, sizeof body, "{%s}", fields);
    begin_answer(w, &kin_format_native, kin_request_from_native, body);
}
#define begin(...) FROM_TEST(begin(__VA_ARGS__))

// Writes a token, with its text unless text is NULL.
static void write_token(written *w, int choice, const char *text, int32_t token, const kin_token_probs *probs) {
    kin_reply_event event = {.kind = KIN_REPLY_TEXT};
    if (text) event.text = (kin_str){text, strlen(text)};
    kin_delta delta = {
        .choice = choice, .events = &event, .n_events = text ? 1 : 0, .tokens = &token, .n_tokens = 1, .probs = probs};
    delta.so_far = (kin_timings){.n_prompt = 9, .n_cached = 4, .n_generated = 7, .prompt_ms = 2, .generated_ms = 3};
    w->format->delta(w->writer, &delta, &w->out);
}

static void drop_settings(json_t *whole) {
    assert_true(json_is_object(json_object_get(whole, "generation_settings")));
    json_object_del(whole, "generation_settings");
}
#define drop_settings(...) FROM_TEST(drop_settings(__VA_ARGS__))

// Compares the chunks without the settings of the last one.
static void expect_stream(written *w, const char *want) {
    bool is_done;
    json_t *chunks = chunks_of(&w->out, &is_done);
    assert_false(is_done); // this API has no end marker
    drop_settings(json_array_get(chunks, json_array_size(chunks) - 1));
    expect_json(chunks, want);
    drop_writing(w);
}
#define expect_stream(...) FROM_TEST(expect_stream(__VA_ARGS__))

static void a_stream_has_pieces_and_then_the_whole(void **state) {
    (void)state;
    written w;
    begin(&w, "'prompt':'Once','stream':true");
    write_token(&w, 0, " upon", 514, NULL);
    write_token(&w, 0, "", 90, NULL); // its text comes with the next token
    write_token(&w, 0, "\\n", 91, NULL);
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_stream(&w, "[" PIECE(" upon", "[514]", 1) "}," PIECE("\\\\n", "[90,91]", 3) "}," WHOLE(
                          0, "", "[]", "'has_new_line':false,'stop_type':'limit','stopping_word':''") "]");
}

static void each_end_has_its_type(void **state) {
    (void)state;
    written w;
    begin(&w, "'prompt':'Once','stream':true");
    write_token(&w, 0, NULL, 90, NULL);
    end_writing(&w, KIN_FINISH_STOP_WORD, "END");
    expect_stream(&w, "[" WHOLE(0, "", "[90]", "'has_new_line':false,'stop_type':'word','stopping_word':'END'") "]");
    begin(&w, "'prompt':'Once','stream':true");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_stream(&w, "[" WHOLE(0, "", "[]", "'has_new_line':false,'stop_type':'eos','stopping_word':''") "]");
}

static void a_document_is_the_whole(void **state) {
    (void)state;
    written w;
    for (int wants_tokens = 0; wants_tokens < 2; wants_tokens++) {
        begin(&w, wants_tokens ? "'prompt':'Once','return_tokens':true" : "'prompt':'Once'");
        write_token(&w, 0, "a\n", 1, NULL);
        write_token(&w, 0, "b", 2, NULL);
        assert_int_equal(w.out.len, 0);
        end_writing(&w, KIN_FINISH_EOS, "");
        json_t *document = read_json(w.out.at, w.out.len);
        drop_settings(document);
        expect_json(document, wants_tokens
                                  ? WHOLE(0, "a\\nb", "[1,2]", "'has_new_line':true,'stop_type':'eos','stopping_word':''")
                                  : WHOLE(0, "a\\nb", "[]", "'has_new_line':true,'stop_type':'eos','stopping_word':''"));
        drop_writing(&w);
    }
}

static void several_prompts_or_choices_make_an_array(void **state) {
    (void)state;
    static const char *const bodies[] = {"'prompt':['a','b'],'response_fields':['index','content']",
                                         "'prompt':'a','n_cmpl':2,'response_fields':['index','content']"};
    for (int i = 0; i < 2; i++) {
        written w;
        begin(&w, bodies[i]);
        write_token(&w, 1, "b", 2, NULL);
        finish_choice(&w, 1, KIN_FINISH_EOS, "");
        write_token(&w, 0, "a", 1, NULL);
        end_writing(&w, KIN_FINISH_EOS, "");
        expect_document(&w, "[{'index':0,'content':'a'},{'index':1,'content':'b'}]");
    }
}

static void fields_are_picked_by_their_path(void **state) {
    (void)state;
    written w;
    begin(&w, "'prompt':'Once','n_predict':3,'response_fields':['content','generation_settings/n_predict','nope','content/x',"
              "'timings/nope','generation_settings/','']");
    write_token(&w, 0, "a", 1, NULL);
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_document(&w, "{'content':'a','generation_settings/n_predict':3}");
}

static void settings_are_those_of_the_request(void **state) {
    (void)state;
    written w;
    begin(&w,
          "'prompt':'Once','n_predict':3,'temperature':0.5,'top_k':7,'stop':['x'],'logit_bias':[[3,false],[4,1.5]],'n_probs':2,"
          "'response_fields':['generation_settings/seed','generation_settings/temperature','generation_settings/top_k',"
          "'generation_settings/stop','generation_settings/logit_bias','generation_settings/n_probs',"
          "'generation_settings/samplers','generation_settings/mirostat','generation_settings/lora']");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_document(&w, "{'generation_settings/seed':5,'generation_settings/temperature':0.5,'generation_settings/top_k':7,"
                        "'generation_settings/stop':['x'],'generation_settings/logit_bias':[{'token':3,'bias':false},"
                        "{'token':4,'bias':1.5}],'generation_settings/n_probs':2,'generation_settings/samplers':"
                        "['penalties','top_k','top_p','min_p','temperature'],'generation_settings/mirostat':0,"
                        "'generation_settings/lora':[]}");
}

static void probabilities_are_logarithms_or_those_that_are_drawn_from(void **state) {
    (void)state;
    kin_token_prob chosen = {514, {" u", 2}, 0};
    kin_token_probs probs = {chosen, &chosen, 1};
    written w;
#define TOKEN "'id':514,'token':' u','bytes':[32,117]"
    begin(&w, "'prompt':'Once','n_probs':1,'response_fields':['completion_probabilities']");
    write_token(&w, 0, " u", 514, &probs);
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_document(&w, "{'completion_probabilities':[{" TOKEN ",'logprob':0.0,'top_logprobs':[{" TOKEN ",'logprob':0.0}]}]}");
    begin(&w, "'prompt':'Once','n_probs':1,'post_sampling_probs':true,'stream':true,'response_fields':['stop']");
    write_token(&w, 0, " u", 514, &probs);
    end_writing(&w, KIN_FINISH_EOS, "");
    bool is_done;
    expect_json(chunks_of(&w.out, &is_done),
                "[" PIECE(" u", "[514]", 1) ",'completion_probabilities':[{" TOKEN ",'prob':1.0,'top_probs':[{" TOKEN
                                            ",'prob':1.0}]}]},{'stop':true}]");
    drop_writing(&w);
}

static void progress_and_timings_come_if_they_are_wanted(void **state) {
    (void)state;
    written w;
    begin(&w, "'prompt':'Once','stream':true,'return_progress':true,'timings_per_token':true,'response_fields':['stop']");
    w.format->progress(w.writer, 0, 9, 4, 9, 2, &w.out);
    write_token(&w, 0, "a", 1, NULL);
    end_writing(&w, KIN_FINISH_EOS, "");
    bool is_done;
    expect_json(
        chunks_of(&w.out, &is_done),
        "[" PIECE("", "[]",
                  0) ",'timings':{'cache_n':4,'prompt_n':5,'prompt_ms':2.0,'prompt_per_token_ms':0.4,"
                     "'prompt_per_second':2500.0,'predicted_n':0,'predicted_ms':0.0,'predicted_per_token_ms':0.0,"
                     "'predicted_per_second':0.0},'prompt_progress':{'total':9,'cache':4,'processed':9,'time_ms':2}}," PIECE(
                         "a", "[1]", 1) "," TIMES "},{'stop':true}]");
    drop_writing(&w);
}

// Expects each of these fields, named between spaces. Returns their number.
static size_t expect_fields(const json_t *o, const char *names) {
    char name[64];
    size_t n = 0;
    for (int used = 0; sscanf(names, "%63s%n", name, &used) == 1; names += used, n++) {
        if (!json_object_get(o, name)) fail_msg("no %s", name);
    }
    return n;
}
#define expect_fields(...) FROM_TEST(expect_fields(__VA_ARGS__))

// kin's answer has the fields of llama-server's except the settings of samplers and formats that kin does not know.
static void a_document_has_the_fields_of_llama_servers(void **state) {
    (void)state;
    kin_token_prob chosen = {514, {" u", 2}, 0};
    kin_token_probs probs = {chosen, &chosen, 1};
    written w;
    begin(&w, "'prompt':'Once','n_probs':1");
    write_token(&w, 0, " u", 514, &probs);
    end_writing(&w, KIN_FINISH_EOS, "");
    json_t *document = read_json(w.out.at, w.out.len);
    size_t n = expect_fields(
        document, "index content tokens id_slot stop model tokens_predicted tokens_evaluated generation_settings prompt "
                  "has_new_line truncated stop_type stopping_word tokens_cached timings completion_probabilities");
    assert_int_equal(json_object_size(document), n);
    expect_fields(
        json_object_get(document, "generation_settings"),
        "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma xtc_probability xtc_threshold "
        "typical_p repeat_last_n repeat_penalty presence_penalty frequency_penalty dry_multiplier dry_base "
        "dry_allowed_length mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay stop max_tokens n_predict "
        "n_keep n_discard ignore_eos stream logit_bias n_probs min_keep grammar reasoning_format reasoning_in_content "
        "samplers timings_per_token post_sampling_probs lora");
    json_decref(document);
    drop_writing(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_pieces_and_then_the_whole),
        cmocka_unit_test(each_end_has_its_type),
        cmocka_unit_test(a_document_is_the_whole),
        cmocka_unit_test(several_prompts_or_choices_make_an_array),
        cmocka_unit_test(fields_are_picked_by_their_path),
        cmocka_unit_test(settings_are_those_of_the_request),
        cmocka_unit_test(probabilities_are_logarithms_or_those_that_are_drawn_from),
        cmocka_unit_test(progress_and_timings_come_if_they_are_wanted),
        cmocka_unit_test(a_document_has_the_fields_of_llama_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
