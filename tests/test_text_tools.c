// Bodies of the smaller endpoints: tokenize, detokenize, apply-template, embeddings, infill, models, props, slots.
#include "serve/request/request_prompts.h"
#include "tests/api_case.h"

#include <math.h>

#include "serve/apis/llama/infill.h"
#include "serve/apis/llama/text_tools.h"
#include "serve/apis/openai/embeddings.h"
#include "serve/server_json.h"
#include "tests/place.h"

static const kin_request_defaults *defaults(void) {
    static kin_request_defaults d;
    d = (kin_request_defaults){.sampler = kin_sampler_options_defaults(), .n_predict = -1};
    return &d;
}

// ---- tokenize, detokenize, apply-template

static void tokenize_reads_its_options(void **state) {
    (void)state;
    kin_tokenize_request r;
    kin_api_error err = {0};
    assert_int_equal(
        kin_tokenize_parse(&r, json_of("{'content':'a\\u0000b','add_special':true,'parse_special':false,'with_pieces':true}"),
                           &err),
        0);
    assert_int_equal(r.content.len, 3);
    assert_true(r.add_special && !r.parse_special && r.with_pieces);
    kin_tokenize_fini(&r);
    assert_int_equal(kin_tokenize_parse(&r, json_of("{}"), &err), 0);
    assert_int_equal(r.content.len, 0);
    assert_true(!r.add_special && r.parse_special && !r.with_pieces);
    kin_tokenize_fini(&r);
    assert_int_equal(kin_tokenize_parse(&r, json_of("{'content':5}"), &err), KIN_FAIL);
    assert_string_equal(err.message, "Field 'content': type must be string, but is number");
    assert_int_equal(kin_tokenize_parse(&r, json_of("[]"), &err), KIN_FAIL);
    assert_int_equal(err.status, 400);
}

static void pieces_that_are_no_text_are_bytes(void **state) {
    (void)state;
    static const int32_t ids[] = {489, 220, 127, 3};
    static const kin_str pieces[] = {{"Once", 4}, {" ", 1}, {"\xc3", 1}, {"", 0}};
    expect_json(kin_tokenize_answer(ids, NULL, 4), "{'tokens':[489,220,127,3]}");
    expect_json(kin_tokenize_answer(ids, pieces, 4),
                "{'tokens':[{'id':489,'piece':'Once'},{'id':220,'piece':' '},{'id':127,'piece':[195]},{'id':3,'piece':''}]}");
    expect_json(kin_tokenize_answer(NULL, NULL, 0), "{'tokens':[]}");
}

static void detokenize_reads_ids(void **state) {
    (void)state;
    static const struct {
        const char *body, *words;
    } bad[] = {{"{'tokens':'x'}", "type must be array"},
               {"{'tokens':[1,-1]}", "must be between 0 and"},
               {"{'tokens':[1,'x']}", "type must be number"},
               {"5", "must be a JSON object"}};
    int32_t *ids;
    int n;
    kin_api_error err = {0};
    assert_int_equal(kin_detokenize_parse(&ids, &n, json_of("{'tokens':[5,6]}"), &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 6);
    free(ids);
    assert_int_equal(kin_detokenize_parse(&ids, &n, json_of("{}"), &err), 0);
    assert_int_equal(n, 0);
    assert_null(ids);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kin_detokenize_parse(&ids, &n, json_of(bad[i].body), &err), KIN_FAIL);
        assert_int_equal(err.status, 400);
        if (!strstr(err.message, bad[i].words)) fail_msg("%s", err.message);
        assert_null(ids);
    }
    expect_json(kin_detokenize_answer((kin_str){"a\xff", 2}), "{'content':'a\xef\xbf\xbd'}");
    expect_json(kin_apply_template_answer((kin_str){"<s>", 3}), "{'prompt':'<s>'}");
}

// ---- embeddings

static void embeddings_take_texts_and_ids(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"{'input':'a'}", "['a']"},
                                           {"{'input':['a','b']}", "['a','b']"},
                                           {"{'input':[1,2]}", "[[1,2]]"},
                                           {"{'input':[[1,2],[3]],'encoding_format':'float','dimensions':3}", "[[1,2],[3]]"},
                                           {"{'content':'c','embd_normalize':2}", "['c']"}};
    static const struct {
        const char *body, *words;
    } bad[] = {{"{}", "\"input\" or \"content\" must be provided"},
               {"{'input':[]}", "must not be empty"},
               {"{'input':5}", "type must be string or array"},
               {"{'input':'a','encoding_format':'hex'}", "must be \"float\" or \"base64\""},
               {"{'input':'a','dimensions':2}", "must be 3 for this model"},
               {"{'input':'a','truncate':'END'}", "type must be boolean"},
               {"{'input':'a','embd_normalize':1}", "must be 2"}};
    kin_embeddings_request r;
    kin_api_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (kin_embeddings_parse(&r, json_of(cases[i][0]), 3, &err) != 0) fail_msg("%s: %s", cases[i][0], err.message);
        expect_json(json_deep_copy(r.inputs), cases[i][1]);
        assert_true(!r.is_base64 && !r.is_raw && !r.truncates);
        kin_embeddings_fini(&r);
    }
    assert_int_equal(kin_embeddings_parse(&r,
                                          json_of("{'input':'a','model':'m','encoding_format':'base64','embd_normalize':-1,"
                                                  "'truncate':true}"),
                                          3, &err),
                     0);
    assert_true(r.is_base64 && r.is_raw && r.truncates);
    assert_string_equal(r.model, "m");
    kin_embeddings_fini(&r);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kin_embeddings_parse(&r, json_of(bad[i].body), 3, &err), KIN_FAIL);
        if (err.status != 400 || !strstr(err.message, bad[i].words)) fail_msg("%s: %s", bad[i].body, err.message);
    }
}

static void vectors_are_numbers_or_base64(void **state) {
    (void)state;
    static const float vectors[] = {1, -0.5f, 0, 2};
    kin_embeddings_request r = {0};
    expect_json(kin_embeddings_answer(&r, "demo", vectors, 2, 2, 5),
                "{'object':'list','model':'demo','data':[{'object':'embedding','index':0,'embedding':[1.0,-0.5]},"
                "{'object':'embedding','index':1,'embedding':[0.0,2.0]}],'usage':{'prompt_tokens':5,'total_tokens':5}}");
    r.is_base64 = true;
    expect_json(kin_embeddings_answer(&r, "demo", vectors, 1, 2, 5), // python3: base64.b64encode(struct.pack('<2f', 1, -.5))
                "{'object':'list','model':'demo','data':[{'object':'embedding','index':0,'embedding':'AACAPwAAAL8='}],"
                "'usage':{'prompt_tokens':5,'total_tokens':5}}");
    expect_json(kin_embedding_answer(vectors, 2, 2),
                "[{'index':0,'embedding':[[1.0,-0.5]]},{'index':1,'embedding':[[0.0,2.0]]}]");
    assert_null(kin_embedding_answer((const float[]){NAN}, 1, 1));
}

static void every_length_of_base64_is_padded(void **state) {
    (void)state;
    static const char *const want[] = {"", "AACAPw==", "AACAPwAAgD8=", "AACAPwAAgD8AAIA/"};
    static const float ones[] = {1, 1, 1};
    for (int n = 1; n <= 3; n++) {
        kin_embeddings_request r = {.is_base64 = true};
        json_t *answer = kin_embeddings_answer(&r, "m", ones, 1, n, 1);
        json_t *one = json_array_get(json_object_get(answer, "data"), 0);
        assert_string_equal(json_string_value(json_object_get(one, "embedding")), want[n]);
        json_decref(answer);
    }
}

static void a_vector_is_brought_to_length_1(void **state) {
    (void)state;
    float v[] = {3, -4}, zero[] = {0, 0};
    kin_embedding_normalize(v, 2);
    assert_float_equal(v[0], 0.6f, 1e-6f);
    assert_float_equal(v[1], -0.8f, 1e-6f);
    kin_embedding_normalize(zero, 2);
    assert_float_equal(zero[0], 0, 0);
}

// ---- infill

static const kin_fim_tokens all_tokens = {1, 2, 3, 4, 5}, few_tokens = {1, 2, 3, KIN_TOKEN_NONE, KIN_TOKEN_NONE};

static void expect_infill(const kin_fim_tokens *tokens, const char *body, const char *prompts) {
    kin_request r;
    kin_api_error err = {0};
    if (kin_request_from_infill(&r, json_of(body), tokens, defaults(), &err) != 0) fail_msg("%s: %s", body, err.message);
    expect_json(json_deep_copy(r.prompts), prompts);
    assert_false(r.parse_special);
    kin_request_fini(&r);
}
#define expect_infill(...) FROM_TEST(expect_infill(__VA_ARGS__))

static void infill_frames_the_texts_with_the_vocabularys_tokens(void **state) {
    (void)state;
    expect_infill(&few_tokens, "{'input_prefix':'a','input_suffix':'z'}", "[['',1,'a',2,'z',3]]");
    expect_infill(&few_tokens, "{'input_prefix':['a',7],'input_suffix':'z','prompt':'b','samplers':['top_k','infill']}",
                  "[['',1,'a',7,'b',2,'z',3]]");
    expect_infill(&few_tokens, "{'input_prefix':'a','input_suffix':'z','input_extra':[{'text':'t'}]}",
                  "[['','\\n\\n--- snippet ---\\n\\n','t',1,'a',2,'z',3]]");
    expect_infill(&all_tokens,
                  "{'input_prefix':'a','input_suffix':'','input_extra':[{'filename':'f.c','text':'t'},{'text':'u'}]}",
                  "[['',4,'myproject\\n',5,'f.c\\n','t',5,'tmp\\n','u',5,'filename\\n',1,'a',2,'',3]]");
}

static void refuse_infill(const kin_fim_tokens *tokens, const char *body, int status, const char *words) {
    kin_request r;
    kin_api_error err = {0};
    assert_int_equal(kin_request_from_infill(&r, json_of(body), tokens, defaults(), &err), KIN_FAIL);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, words)) fail_msg("%s: %s", body, err.message);
}
#define refuse_infill(...) FROM_TEST(refuse_infill(__VA_ARGS__))

static void infill_needs_its_fields_and_tokens(void **state) {
    (void)state;
    kin_fim_tokens none = {KIN_TOKEN_NONE, 2, KIN_TOKEN_NONE, 4, 5};
    refuse_infill(&none, "{'input_prefix':'a','input_suffix':'z'}", 501,
                  "Infill is not supported by this model: prefix token is missing. middle token is missing.");
    refuse_infill(&all_tokens, "{'input_suffix':'z'}", 400, "Field 'input_prefix': is required");
    refuse_infill(&all_tokens, "{'input_prefix':'z'}", 400, "Field 'input_suffix': is required");
    refuse_infill(&all_tokens, "{'input_prefix':5,'input_suffix':'z'}", 400, "Field 'input_prefix': type must be string");
    refuse_infill(&all_tokens, "{'input_prefix':[-1],'input_suffix':'z'}", 400, "Prompt contains invalid tokens");
    refuse_infill(&all_tokens, "{'input_prefix':'','input_suffix':'','prompt':[1]}", 400, "Field 'prompt': type must be string");
    refuse_infill(&all_tokens, "{'input_prefix':'','input_suffix':'','input_extra':[{}]}", 400,
                  "Field 'input_extra[0].text': is required");
    refuse_infill(&all_tokens, "{'input_prefix':'','input_suffix':'','input_extra':{}}", 400,
                  "Field 'input_extra': type must be array");
    refuse_infill(&all_tokens, "[]", 400, "must be a JSON object");
    refuse_infill(&all_tokens, "{'input_prefix':'','input_suffix':'','temperature':'x'}", 400, "Field 'temperature'");
}

static void completions_with_a_suffix_are_framed_as_infill_is(void **state) {
    (void)state;
    kin_fim_tokens none = {1, KIN_TOKEN_NONE, 3, 4, 5};
    kin_request r;
    kin_api_error err = {0};
    const char *body = "{'prompt':['a',[7,'b']],'suffix':'z'}";
    assert_int_equal(kin_request_from_completions(&r, json_of(body), defaults(), &err), 0);
    assert_int_equal(kin_request_frame_prompts(&r, &all_tokens, &err), 0);
    expect_json(json_deep_copy(r.prompts), "[['',1,'a',2,'z',3],['',1,7,'b',2,'z',3]]");
    assert_false(r.parse_special);
    kin_request_fini(&r);
    assert_int_equal(kin_request_from_completions(&r, json_of(body), defaults(), &err), 0);
    assert_int_equal(kin_request_frame_prompts(&r, &none, &err), KIN_FAIL);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "suffix");
    assert_non_null(strstr(err.message, "suffix token is missing"));
}

static void what_llama_vim_sends_is_taken(void **state) {
    (void)state;
    kin_request r;
    kin_api_error err = {0};
    const char *body =
        "{'id_slot':0,'input_prefix':'a','input_suffix':'z','input_extra':[],'prompt':'','n_predict':128,'n_cmpl':1,"
        "'n_indent':4,'top_k':40,'top_p':0.9,'samplers':['top_k','top_p','infill'],'stream':false,'cache_prompt':true,"
        "'t_max_prompt_ms':500,'t_max_predict_ms':1000,'response_fields':['content','timings/prompt_n']}";
    if (kin_request_from_infill(&r, json_of(body), &all_tokens, defaults(), &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(r.n_indent, 4);
    assert_int_equal(r.n_predict, 128);
    assert_int_equal(r.sampler.top_k, 40);
    assert_float_equal(r.sampler.min_p, 0, 0);
    kin_request_fini(&r);
}

static void tokens_for_infill_are_found_by_name(void **state) {
    (void)state;
    static const kin_str names[] = {{"a", 1},
                                    {"<|fim_middle|>", 14},
                                    {"<|fim_prefix|>", 14},
                                    {"<\xef\xbd\x9c"
                                     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
                                     18},
                                    {"<|file_sep|>", 12}};
    kin_vocab_spec spec = kin_vocab_spec_defaults(KIN_VOCAB_BPE, "gpt-2");
    kin_vocab *vocab;
    kin_err err;
    spec.tokens = names;
    spec.n_tokens = 5;
    if (kin_vocab_new(&vocab, &spec, &err) != 0) fail_msg("%s", err.text);
    kin_fim_tokens t = kin_fim_tokens_of(vocab);
    assert_int_equal(t.prefix, 2);
    assert_int_equal(t.suffix, 3);
    assert_int_equal(t.middle, 1);
    assert_int_equal(t.repo, KIN_TOKEN_NONE);
    assert_int_equal(t.separator, 4);
    kin_vocab_free(vocab);
}

// ---- the server

#define CARD                                                                                                                     \
    "{'id':'demo','aliases':['demo','d'],'tags':[],'object':'model','created':1000,'owned_by':'kin','architecture':"             \
    "{'input_modalities':['text'],'output_modalities':['text']},'meta':{'vocab_type':2,'n_vocab':1280,'n_ctx':512,"              \
    "'n_ctx_train':513,'n_embd':256,'n_params':6623488,'size':4061696,'ftype':'Q4_K - Medium'}}"

static void models_are_listed_for_openais_clients_and_ollamas(void **state) {
    (void)state;
    static const char *const aliases[] = {"demo", "d"};
    kin_model_card card = {.id = "demo", .aliases = aliases, .n_aliases = 2, .created_s = 1000, .ftype = "Q4_K - Medium"};
    card.vocab_type = 2;
    card.n_vocab = 1280;
    card.n_ctx = 512;
    card.n_ctx_train = 513;
    card.n_embd = 256;
    card.n_params = 6623488;
    card.n_bytes = 4061696;
    card.has_tools = true;
    expect_json(kin_model_json(&card), CARD);
    json_t *all = kin_models_json(&card, 1), *models = json_object_get(all, "models");
    expect_json(json_incref(json_object_get(json_array_get(models, 0), "capabilities")), "['completion','tools']");
    assert_string_equal(json_string_value(json_object_get(json_array_get(models, 0), "name")), "demo");
    json_object_del(all, "models");
    expect_json(all, "{'object':'list','data':[" CARD "]}");
    expect_json(kin_models_json(NULL, 0), "{'object':'list','data':[],'models':[]}");
}

static void props_have_what_clients_look_for(void **state) {
    (void)state;
    static const char *const names[] = {"default_generation_settings",
                                        "total_slots",
                                        "model_alias",
                                        "model_ftype",
                                        "model_path",
                                        "modalities",
                                        "endpoint_slots",
                                        "endpoint_props",
                                        "endpoint_metrics",
                                        "ui",
                                        "ui_settings",
                                        "chat_template",
                                        "chat_template_caps",
                                        "bos_token",
                                        "eos_token",
                                        "build_info",
                                        "is_sleeping",
                                        "context_is_shared"};
    kin_request request;
    kin_api_error err;
    assert_int_equal(kin_request_from_native(&request, json_of("{'prompt':''}"), defaults(), &err), 0);
    kin_server_props p = {.defaults = &request, .n_ctx = 512, .n_slots = 4, .alias = "demo", .chat_template = "{{ x }}"};
    json_t *props = kin_props_json(&p), *generation = json_object_get(props, "default_generation_settings");
    assert_int_equal(json_object_size(props), sizeof names / sizeof names[0]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) assert_non_null(json_object_get(props, names[i]));
    assert_int_equal(json_integer_value(json_object_get(generation, "n_ctx")), 512);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(generation, "params"), "top_k")), 40);
    assert_string_equal(json_string_value(json_object_get(props, "chat_template")), "{{ x }}");
    assert_string_equal(json_string_value(json_object_get(props, "bos_token")), "");
    json_decref(props);
    kin_request_fini(&request);
}

static void a_slot_that_was_never_used_has_no_params(void **state) {
    (void)state;
    kin_request request;
    kin_api_error err;
    assert_int_equal(kin_request_from_native(&request, json_of("{'prompt':'','temperature':0.5}"), defaults(), &err), 0);
    kin_slot_view slots[2] = {
        {.id = 0, .task = -1, .n_ctx = 512},
        {.id = 1, .task = 9, .n_ctx = 512, .is_processing = true, .n_prompt = 7, .n_done = 3, .n_cached = 2}};
    slots[1].request = &request;
    slots[1].n_generated = 4;
    slots[1].n_left = -1;
    json_t *all = kin_slots_json(slots, 2), *params = json_object_get(json_array_get(all, 1), "params");
    assert_float_equal(json_real_value(json_object_get(params, "temperature")), 0.5, 0);
    json_object_del(json_array_get(all, 1), "params");
    expect_json(all, "[{'id':0,'n_ctx':512,'speculative':false,'is_processing':false},"
                     "{'id':1,'n_ctx':512,'speculative':false,'is_processing':true,'id_task':9,'n_prompt_tokens':7,"
                     "'n_prompt_tokens_processed':3,'n_prompt_tokens_cache':2,'next_token':[{'has_next_token':true,"
                     "'has_new_line':false,'n_remain':-1,'n_decoded':4}]}]");
    kin_request_fini(&request);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenize_reads_its_options),
        cmocka_unit_test(pieces_that_are_no_text_are_bytes),
        cmocka_unit_test(detokenize_reads_ids),
        cmocka_unit_test(embeddings_take_texts_and_ids),
        cmocka_unit_test(vectors_are_numbers_or_base64),
        cmocka_unit_test(every_length_of_base64_is_padded),
        cmocka_unit_test(a_vector_is_brought_to_length_1),
        cmocka_unit_test(infill_frames_the_texts_with_the_vocabularys_tokens),
        cmocka_unit_test(infill_needs_its_fields_and_tokens),
        cmocka_unit_test(completions_with_a_suffix_are_framed_as_infill_is),
        cmocka_unit_test(what_llama_vim_sends_is_taken),
        cmocka_unit_test(tokens_for_infill_are_found_by_name),
        cmocka_unit_test(models_are_listed_for_openais_clients_and_ollamas),
        cmocka_unit_test(props_have_what_clients_look_for),
        cmocka_unit_test(a_slot_that_was_never_used_has_no_params),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
