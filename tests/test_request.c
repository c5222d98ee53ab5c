// Requests of OpenAI's chat completions and completions, and of llama.cpp's completion: the effect of each field, and the error
// for each refusal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/request/request.h"
#include "serve/request/request_chat.h"
#include "serve/request/request_prompts.h"
#include "tests/place.h"

typedef int parse_request(kin_request *out, json_t *body, const kin_request_defaults *defaults, kin_api_error *err);

// ' stands for ".
static json_t *parse_json(const char *text) {
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    json_error_t error;
    json_t *json = json_loads(copy, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!json) fail_msg("%s: %s", text, error.text);
    free(copy);
    return json;
}

static kin_request_defaults make_defaults(void) {
    return (kin_request_defaults){.sampler = kin_sampler_options_defaults(), .n_predict = 77};
}

static int parse(parse_request *parser, kin_request *out, const char *body, kin_api_error *err) {
    kin_request_defaults defaults = make_defaults();
    return parser(out, parse_json(body), &defaults, err);
}
#define parse(...) FROM_TEST(parse(__VA_ARGS__))

// ---- a request as JSON

static void put(json_t *object, const char *key, json_t *value) {
    assert_non_null(value);
    json_object_set_new(object, key, value);
}

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

static json_t *copy_or_null(const json_t *json) {
    return json ? json_deep_copy(json) : json_null();
}

static json_t *rounded(float value) {
    return json_real(round(value * 1e4) / 1e4);
}

static json_t *describe_stops(const kin_request *r) {
    json_t *stops = json_array();
    for (int i = 0; i < r->n_stops; i++) json_array_append_new(stops, json_stringn(r->stops[i].at, r->stops[i].len));
    return stops;
}

static json_t *describe_bias(const kin_request *r) {
    json_t *all = json_array();
    assert_ptr_equal(r->sampler.bias, r->bias);
    for (size_t i = 0; i < r->sampler.n_bias; i++) {
        json_t *bias = isinf(r->bias[i].bias) ? json_false() : rounded(r->bias[i].bias);
        json_array_append_new(all, json_pack("[i, o]", r->bias[i].id, bias));
    }
    return all;
}

static void describe_sampler(json_t *o, const kin_request *r) {
    put(o, "seed", r->has_seed ? json_integer((json_int_t)r->sampler.seed) : json_null());
    put(o, "temperature", rounded(r->sampler.temperature));
    put(o, "top_k", json_integer(r->sampler.top_k));
    put(o, "top_p", rounded(r->sampler.top_p));
    put(o, "min_p", rounded(r->sampler.min_p));
    put(o, "repeat_last_n", json_integer(r->sampler.penalty_last_n));
    put(o, "repeat_penalty", rounded(r->sampler.penalty_repeat));
    put(o, "frequency_penalty", rounded(r->sampler.penalty_frequency));
    put(o, "presence_penalty", rounded(r->sampler.penalty_presence));
    put(o, "bias", describe_bias(r));
    put(o, "text_bias", copy_or_null(r->text_bias));
}

static void describe_chat(json_t *o, const kin_request *r) {
    static const char *const choices[] = {"auto", "none", "required", "named"};
    put(o, "messages", copy_or_null(r->messages));
    put(o, "tools", copy_or_null(r->tools));
    put(o, "tool_choice", json_string(choices[r->tool_choice]));
    put(o, "tool_name", text_or_null(r->tool_name));
    put(o, "parallel", json_boolean(r->parallel_tool_calls));
    put(o, "kwargs", copy_or_null(r->template_kwargs));
    put(o, "thinking", r->thinking == KIN_UNSET ? json_null() : json_boolean(r->thinking));
    put(o, "thinking_budget", json_integer(r->thinking_budget));
    put(o, "budget_message", text_or_null(r->thinking_budget_message));
    put(o, "reasoning_in_content", json_boolean(r->reasoning_in_content));
    put(o, "generation_prompt", json_boolean(r->add_generation_prompt));
    put(o, "continues", json_boolean(r->continues_last));
}

static void describe_rest(json_t *o, const kin_request *r) {
    put(o, "model", text_or_null(r->model));
    put(o, "prompts", copy_or_null(r->prompts));
    put(o, "echo", json_boolean(r->echo));
    put(o, "n_predict", json_integer(r->n_predict));
    put(o, "n_choices", json_integer(r->n_choices));
    put(o, "n_best", json_integer(r->n_best));
    put(o, "suffix", copy_or_null(r->suffix));
    put(o, "hides_probs", json_boolean(r->hides_probs));
    put(o, "n_probs", json_integer(r->n_probs));
    put(o, "post_sampling", json_boolean(r->post_sampling_probs));
    put(o, "t_max", json_integer(r->t_max_predict_ms));
    put(o, "n_indent", json_integer(r->n_indent));
    put(o, "stops", describe_stops(r));
    put(o, "ignore_eos", json_boolean(r->ignore_eos));
    put(o, "grammar", text_or_null(r->grammar));
    put(o, "schema", text_or_null(r->schema));
    put(o, "stream", json_boolean(r->stream));
    put(o, "usage", json_boolean(r->include_usage));
    put(o, "timings", json_boolean(r->timings_per_token));
    put(o, "tokens", json_boolean(r->return_tokens));
    put(o, "progress", json_boolean(r->return_progress));
    put(o, "cache", json_boolean(r->cache_prompt));
    put(o, "verbose", json_boolean(r->verbose));
    put(o, "slot", json_integer(r->id_slot));
    put(o, "fields", copy_or_null(r->response_fields));
    put(o, "ping", json_integer(r->sse_ping_s));
}

static json_t *describe(const kin_request *r) {
    json_t *o = json_object();
    describe_sampler(o, r);
    describe_chat(o, r);
    describe_rest(o, r);
    return o;
}

// ---- tables

#define CHAT "'messages':[{'role':'user','content':'x'}]"
#define TOOL(name) "{'type':'function','function':{'name':'" name "','parameters':{'type':'object'}}}"

#define ALLOWED(mode, name)                                                                                                      \
    "{'type':'allowed_tools','allowed_tools':{'mode':'" mode "','tools':[{'type':'function','function':{'name':'" name "'}}]}}"

typedef struct good {
    const char *fields;  // added to the minimal body
    const char *changes; // difference from the minimal body's request
} good;

static void check_one(parse_request *parser, const char *smallest, const good *g) {
    char body[4096];
    kin_request plain, request;
    kin_api_error err = {0};
    snprintf(body, sizeof body, "{%s}", smallest);
    assert_int_equal(parse(parser, &plain, body, &err), 0);
    snprintf(body, sizeof body, "{%s,%s}", smallest, g->fields);
    if (parse(parser, &request, body, &err) < 0) fail_msg("%s: %s", g->fields, err.message);
    json_t *expected = describe(&plain), *got = describe(&request), *changes = parse_json(g->changes);
    json_object_update(expected, changes);
    if (!json_equal(expected, got)) {
        const char *key;
        json_t *value;
        json_object_foreach(expected, key, value) {
            char *a = json_dumps(value, JSON_ENCODE_ANY), *b = json_dumps(json_object_get(got, key), JSON_ENCODE_ANY);
            if (strcmp(a, b) != 0) fail_msg("%s: %s: expected %s, got %s", g->fields, key, a, b);
            free(a);
            free(b);
        }
        fail_msg("%s: a key of 'changes' is not known", g->fields);
    }
    json_decref(expected);
    json_decref(got);
    json_decref(changes);
    kin_request_fini(&plain);
    kin_request_fini(&request);
}
#define check_one(...) FROM_TEST(check_one(__VA_ARGS__))

#define check_all(parser, smallest, table)                                                                                       \
    for (size_t i_ = 0; i_ < sizeof(table) / sizeof(table)[0]; i_++) check_one(parser, smallest, &(table)[i_])

static void fields_of_all_apis_go_where_they_belong(void **state) {
    (void)state;
    static const good table[] = {
        {"'nonsense':[1,{'a':2}],'user':5", "{}"},
        {"'temperature':null,'stop':null,'tools':null,'n':null,'stream':null", "{}"},
        {"'model':'demo'", "{'model':'demo'}"},
        {"'stream':true,'stream_options':{'include_usage':true,'other':1}", "{'stream':true,'usage':true}"},
        {"'max_tokens':5", "{'n_predict':5}"},
        {"'max_tokens':5,'max_completion_tokens':6", "{'n_predict':6}"},
        {"'n_predict':7,'max_tokens':5,'max_completion_tokens':6", "{'n_predict':7}"},
        {"'max_tokens':-1", "{'n_predict':-1}"},
        {"'max_tokens':0", "{'n_predict':0}"},
        {"'max_tokens':12.0", "{'n_predict':12}"},
        {"'temperature':0", "{'temperature':0.0}"},
        {"'temperature':-1,'top_k':-1,'top_p':0,'min_p':-1", "{'temperature':0.0,'top_k':0,'top_p':0.0,'min_p':0.0}"},
        {"'temperature':1e300,'top_k':1e300,'top_p':2,'min_p':2",
         "{'temperature':3.4028234663852886e38,'top_k':2147483647,'top_p':1.0,'min_p':1.0}"},
        {"'temperature':0.5,'top_k':3,'top_p':0.5,'min_p':0.25", "{'temperature':0.5,'top_k':3,'top_p':0.5,'min_p':0.25}"},
        {"'repeat_last_n':-1", "{'repeat_last_n':65536}"},
        {"'repeat_last_n':1000000,'repeat_penalty':1.1", "{'repeat_last_n':65536,'repeat_penalty':1.1}"},
        {"'frequency_penalty':-2,'presence_penalty':1.5", "{'frequency_penalty':-2.0,'presence_penalty':1.5}"},
        {"'seed':42", "{'seed':42}"},
        {"'seed':42.0", "{'seed':42}"},
        {"'seed':-1", "{}"},
        {"'seed':4294967295", "{}"},
        {"'seed':18446744073709551615.0", "{}"},
        {"'seed':9223372036854775808.0", "{'seed':-9223372036854775808}"},
        {"'seed':-5", "{'seed':-5}"},
        {"'seed':9223372036854775807", "{'seed':9223372036854775807}"},
        {"'stop':'END'", "{'stops':['END']}"},
        {"'stop':''", "{}"},
        {"'stop':['a','','b\\u0000c']", "{'stops':['a','b\\u0000c']}"},
        {"'logit_bias':{'15':-100,' yes':2,'-3':1,'1x':false}",
         "{'bias':[[15,-100.0]],'text_bias':[[' yes',2],['-3',1],['1x',false]]}"},
        {"'logit_bias':[[15,false],['no',false],[16,0.5]]", "{'bias':[[15,false],[16,0.5]],'text_bias':[['no',false]]}"},
        {"'logit_bias':{}", "{}"},
        {"'ignore_eos':true,'t_max_predict_ms':250,'n_indent':4", "{'ignore_eos':true,'t_max':250,'n_indent':4}"},
        {"'t_max_predict_ms':-1", "{}"},
        {"'n':3", "{'n_choices':3}"},
        {"'n':3,'n_cmpl':4", "{'n_choices':4}"},
        {"'grammar':'root ::= x'", "{'grammar':'root ::= x'}"},
        {"'grammar':''", "{}"},
        {"'json_schema':{'type':'integer'}", "{'schema':'{\\u0022type\\u0022:\\u0022integer\\u0022}'}"},
        {"'json_schema':{'enum':[0.1,1e300,-5,123456789012.25]}", // numbers as they were written
         "{'schema':'{\\u0022enum\\u0022:[0.1,1e300,-5,123456789012.25]}'}"},
        {"'n_probs':3,'post_sampling_probs':true", "{'n_probs':3,'post_sampling':true}"},
        {"'n_probs':0", "{}"},
        {"'n_probs':5000", "{'n_probs':100}"},
        {"'return_progress':true,'return_tokens':true,'timings_per_token':true",
         "{'progress':true,'tokens':true,'timings':true}"},
        {"'cache_prompt':false,'id_slot':2,'sse_ping_interval':-1,'verbose':true",
         "{'cache':false,'slot':2,'ping':-1,'verbose':true}"},
        {"'sse_ping_interval':5", "{'ping':5}"},
        {"'mirostat':0,'mirostat_tau':5,'typical_p':1,'top_n_sigma':-1,'xtc_probability':0,'dry_multiplier':0,'dynatemp_range':0,"
         "'adaptive_target':-1,'min_keep':0,'lora':[],'n_keep':5,'n_discard':0,'n_cache_reuse':256",
         "{}"},
        {"'lora':[{'id':0,'scale':0}]", "{}"},
    };
    check_all(kin_request_from_chat, CHAT, table);
    check_all(kin_request_from_completions, "'prompt':'x'", table);
    check_all(kin_request_from_native, "'prompt':'x'", table);
}

static void samplers_in_kins_order_are_taken_and_the_unlisted_turned_off(void **state) {
    (void)state;
    static const good table[] = {
        {"'samplers':['penalties','dry','top_n_sigma','top_k','typ_p','top_p','min_p','xtc','temperature']", "{}"},
        {"'samplers':'edkypmxt'", "{}"},
        {"'samplers':['top_k','top_p'],'top_k':3", "{'top_k':3,'min_p':0.0,'temperature':1.0}"},
        {"'samplers':['top_k','top_p','min_p','temperature'],'repeat_penalty':1.5", "{'repeat_penalty':1.5,'repeat_last_n':0}"},
        {"'samplers':[]", "{'top_k':0,'top_p':1.0,'min_p':0.0,'temperature':1.0}"},
        {"'samplers':['temperature','top_k'],'temperature':1", "{'temperature':1.0,'top_p':1.0,'min_p':0.0}"},
    };
    check_all(kin_request_from_native, "'prompt':'x'", table);
}

static void fields_of_chats_go_where_they_belong(void **state) {
    (void)state;
    static const good table[] = {
        {"'add_generation_prompt':false", "{'generation_prompt':false}"},
        {"'tools':[" TOOL("a.b-c_9") "]", "{'tools':[" TOOL("a.b-c_9") "]}"},
        {"'tools':[]", "{}"},
        {"'tools':[" TOOL("f") "],'tool_choice':'required'", "{'tools':[" TOOL("f") "],'tool_choice':'required'}"},
        {"'tool_choice':'none'", "{'tool_choice':'none'}"},
        {"'tools':[" TOOL("e") "," TOOL("f") "],'tool_choice':" ALLOWED("auto", "f"), "{'tools':[" TOOL("f") "]}"},
        {"'tools':[" TOOL("e") "," TOOL("f") "],'tool_choice':" ALLOWED("required", "e"),
         "{'tools':[" TOOL("e") "],'tool_choice':'required'}"},
        {"'tools':[" TOOL("e") "," TOOL("f") "],'tool_choice':{'type':'function','function':{'name':'f'}}",
         "{'tools':[" TOOL("e") "," TOOL("f") "],'tool_choice':'named','tool_name':'f'}"},
        {"'parallel_tool_calls':false", "{'parallel':false}"},
        {"'response_format':{'type':'text'}", "{}"},
        {"'response_format':{'type':'json_object'}", "{'schema':'{\\u0022type\\u0022:\\u0022object\\u0022}'}"},
        {"'response_format':{'type':'json_object','schema':{'type':'array'}}",
         "{'schema':'{\\u0022type\\u0022:\\u0022array\\u0022}'}"},
        {"'response_format':{'type':'json_schema','json_schema':{'name':'n','strict':true,'schema':{'type':'null'}}}",
         "{'schema':'{\\u0022type\\u0022:\\u0022null\\u0022}'}"},
        {"'reasoning_effort':'none'", "{'thinking':false}"},
        {"'reasoning_effort':'low'", "{'kwargs':{'reasoning_effort':'low'}}"},
        {"'chat_template_kwargs':{'enable_thinking':false,'a':[1]}",
         "{'thinking':false,'kwargs':{'enable_thinking':false,'a':[1]}}"},
        {"'chat_template_kwargs':{'enable_thinking':true},'reasoning_effort':'none'",
         "{'thinking':true,'kwargs':{'enable_thinking':true}}"},
        {"'chat_template_kwargs':{'reasoning_effort':'high'},'reasoning_effort':'low'", "{'kwargs':{'reasoning_effort':'high'}}"},
        {"'thinking':{'type':'enabled','budget_tokens':100}", "{'thinking':true,'thinking_budget':100}"},
        {"'thinking':{'type':'disabled'}", "{'thinking':false}"},
        {"'thinking_budget_tokens':9,'reasoning_budget_message':'enough'", "{'thinking_budget':9,'budget_message':'enough'}"},
        {"'reasoning_budget_tokens':0", "{'thinking_budget':0}"},
        {"'reasoning_format':'none'", "{'reasoning_in_content':true}"},
        {"'reasoning_format':'deepseek'", "{}"},
        {"'logprobs':true", "{'n_probs':0}"},
        {"'logprobs':false", "{}"},
        {"'logprobs':true,'top_logprobs':5", "{'n_probs':5}"},
        {"'logprobs':false,'top_logprobs':0", "{}"},
    };
    check_all(kin_request_from_chat, CHAT, table);
}

#define SAYS(messages) "'messages':[" messages "]"

static void messages_are_normalised(void **state) {
    (void)state;
    static const good table[] = {
        {SAYS("{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]}"),
         "{" SAYS("{'role':'user','content':'a\\nb'}") "}"},
        {SAYS("{'role':'user','content':[]}"), "{" SAYS("{'role':'user','content':''}") "}"},
        {SAYS("{'role':'developer','content':'d'},{'role':'user','content':'a\\u0000'}"),
         "{" SAYS("{'role':'system','content':'d'},{'role':'user','content':'a\\u0000'}") "}"},
        {SAYS("{'role':'assistant','content':null,'tool_calls':[{'id':'1','type':'function','function':{'name':'f','arguments':{'"
              "a':1}}}]},"
              "{'role':'tool','tool_call_id':'1','content':[{'type':'text','text':'r'}]}"),
         "{" SAYS(
             "{'role':'assistant','content':null,'tool_calls':[{'id':'1','type':'function','function':{'name':'f','arguments':"
             "'{\\u0022a\\u0022:1}'}}]},{'role':'tool','tool_call_id':'1','content':'r'}") "}"},
        {SAYS("{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':''}},{'function':{'name':'g'}}]},"
              "{'role':'user','content':'x'}"),
         "{" SAYS("{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':'{}'}},{'function':{'name':'g','"
                  "arguments':'{}'}}]"
                  "},{'role':'user','content':'x'}") "}"},
        {SAYS("{'role':'system','content':null},{'role':'user','content':null},{'role':'assistant','content':null}"),
         "{" SAYS("{'role':'system','content':''},{'role':'user','content':''},{'role':'assistant','content':''}") "}"},
        {SAYS("{'role':'assistant','content':[{'type':'refusal','refusal':'no'}],'tool_calls':[]},{'role':'user','content':'x'}"),
         "{" SAYS("{'role':'assistant','content':'no'},{'role':'user','content':'x'}") "}"},
    };
    check_all(kin_request_from_chat, CHAT, table);
}

static void the_assistants_last_message_is_gone_on_with(void **state) {
    (void)state;
#define LAST "{'role':'user','content':'x'},{'role':'assistant','content':'The'}"
    static const good table[] = {
        {SAYS(LAST), "{" SAYS(LAST) ",'continues':true}"},
        {SAYS(LAST) ",'continue_final_message':true,'add_generation_prompt':false",
         "{" SAYS(LAST) ",'continues':true,'generation_prompt':false}"},
        {SAYS(LAST) ",'continue_final_message':'content'", "{" SAYS(LAST) ",'continues':true}"},
        {SAYS(LAST) ",'continue_final_message':false", "{" SAYS(LAST) "}"},
    };
    check_all(kin_request_from_chat, CHAT, table);
}

static void prompts_are_one_or_several(void **state) {
    (void)state;
    static const good table[] = {
        {"'prompt':'a'", "{'prompts':['a']}"},
        {"'prompt':''", "{'prompts':['']}"},
        {"'prompt':['a','b']", "{'prompts':['a','b']}"},
        {"'prompt':[1,2]", "{'prompts':[[1,2]]}"},
        {"'prompt':[1,'b',2]", "{'prompts':[[1,'b',2]]}"},
        {"'prompt':[[1,2],[3]]", "{'prompts':[[1,2],[3]]}"},
        {"'prompt':['a',[1,'c']]", "{'prompts':['a',[1,'c']]}"},
        {"'prompt':{'prompt_string':'p'}", "{'prompts':['p']}"},
        {"'prompt':[{'prompt_string':'p','multimodal_data':[]},'q']", "{'prompts':['p','q']}"},
    };
    check_all(kin_request_from_native, "'prompt':'x'", table);
    check_all(kin_request_from_completions, "'prompt':'x'", table);
}

static void fields_of_completions_and_of_the_native_api(void **state) {
    (void)state;
    static const good completions[] = {
        {"'echo':true", "{'echo':true}"},
        {"'logprobs':0", "{'n_probs':0}"},
        {"'logprobs':5", "{'n_probs':5}"},
        {"'logprobs':false", "{}"},
        {"'suffix':'','best_of':1,'n':1", "{}"},
        {"'response_fields':['content']", "{}"},
        {"'suffix':'z'", "{'suffix':'z'}"},
        {"'n':2,'best_of':5", "{'n_choices':5,'n_best':2,'n_probs':0,'hides_probs':true}"},
        {"'best_of':3,'logprobs':1", "{'n_choices':3,'n_best':1,'n_probs':1}"},
    };
    static const good native[] = {
        {"'response_fields':['content','generation_settings/n_predict']",
         "{'fields':['content','generation_settings/n_predict']}"},
        {"'response_fields':[]", "{}"},
        {"'echo':true,'tools':5", "{}"},
    };
    check_all(kin_request_from_completions, "'prompt':'x'", completions);
    check_all(kin_request_from_native, "'prompt':'x'", native);
}

// ---- refusals

typedef struct bad {
    parse_request *parser;
    const char *body, *param, *message; // message: its beginning
    int status;                         // 0: 400
} bad;

#define USER(content) "{'messages':[{'role':'user','content':" content "}]}"
#define WITH(fields) "{" CHAT "," fields "}"
#define PROMPT(fields) "{'prompt':'x'," fields "}"

static const bad refused[] = {
    {kin_request_from_chat, "[]", "", "The body must be a JSON object", 0},
    {kin_request_from_chat, "{}", "messages", "'messages' is required", 0},
    {kin_request_from_chat, "{'messages':[]}", "messages", "'messages' must not be empty", 0},
    {kin_request_from_chat, "{'messages':{}}", "messages", "Field 'messages': type must be array, but is object", 0},
    {kin_request_from_chat, "{'messages':['x']}", "messages[0]", "Field 'messages[0]': type must be object, but is string", 0},
    {kin_request_from_chat, "{'messages':[{'content':'x'}]}", "messages[0].role", "Field 'messages[0].role': is required", 0},
    {kin_request_from_chat, "{'messages':[{'role':'user'}]}", "messages[0].content", "Field 'messages[0].content': is required",
     0},
    {kin_request_from_chat, "{'messages':[{'role':'assistant'}]}", "messages[0]",
     "Field 'messages[0]': an assistant's message must", 0},
    {kin_request_from_chat, USER("5"), "messages[0].content",
     "Field 'messages[0].content': type must be string or array, but is number", 0},
    {kin_request_from_chat, USER("[{'type':'text'}]"), "messages[0].content[0].text",
     "Field 'messages[0].content[0].text': is required", 0},
    {kin_request_from_chat, USER("[{'type':'foo'}]"), "messages[0].content[0].type",
     "Field 'messages[0].content[0].type': must be 'text', but is 'foo'", 0},
    {kin_request_from_chat, USER("[{'type':'video_url'}]"), "messages[0].content[0]",
     "Field 'messages[0].content[0]': kin supports text only, not video_url", 501},
    {kin_request_from_chat, USER("[{'type':'image_url'}]"), "messages[0].content[0]",
     "Field 'messages[0].content[0]': kin supports text only, not image_url", 501},
    {kin_request_from_chat, "{'messages':[{'role':'assistant','tool_calls':[{'function':{}}]}]}",
     "messages[0].tool_calls[0].function.name", "Field 'messages[0].tool_calls[0].function.name': is required", 0},
    {kin_request_from_chat, "{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':5}}]}]}",
     "messages[0].tool_calls[0].function.arguments",
     "Field 'messages[0].tool_calls[0].function.arguments': type must be string, but is", 0},
    {kin_request_from_chat, "{'messages':[{'role':'assistant','content':'a'},{'role':'assistant','content':'b'}]}", "messages",
     "Field 'messages': two assistant messages at the end", 0},
    {kin_request_from_chat, WITH("'continue_final_message':true"), "continue_final_message",
     "Field 'continue_final_message': the last", 0},
    {kin_request_from_chat, WITH("'continue_final_message':true,'add_generation_prompt':true"), "continue_final_message",
     "Cannot set both add_generation_prompt and continue_final_message", 0},
    {kin_request_from_chat, WITH("'continue_final_message':'reasoning_content'"), "continue_final_message",
     "Field 'continue_final_message': must be a boolean or \"content\"", 0},
    {kin_request_from_chat, WITH("'temperature':'hot'"), "temperature", "Field 'temperature': type must be number, but is string",
     0},
    {kin_request_from_chat, WITH("'stream':1"), "stream", "Field 'stream': type must be boolean, but is number", 0},
    {kin_request_from_chat, WITH("'grammar':5"), "grammar", "Field 'grammar': type must be string, but is number", 0},
    {kin_request_from_chat, WITH("'max_tokens':true"), "max_tokens", "Field 'max_tokens': type must be number, but is boolean",
     0},
    {kin_request_from_chat, WITH("'max_tokens':-2"), "max_tokens",
     "Field 'max_tokens': must be between -1 and 2147483647, but is -2", 0},
    {kin_request_from_chat, WITH("'max_tokens':1e300"), "max_tokens", "Field 'max_tokens': must be between", 0},
    {kin_request_from_chat, WITH("'max_tokens':1.5"), "max_tokens", "Field 'max_tokens': must be a whole number, but is 1.5", 0},
    {kin_request_from_chat, WITH("'n':0"), "n", "Field 'n': must be between 1 and 128, but is 0", 0},
    {kin_request_from_chat, WITH("'n':129"), "n", "Field 'n': must be between 1 and 128, but is 129", 0},
    {kin_request_from_chat, WITH("'seed':1.5"), "seed", "Field 'seed': must be a whole number", 0},
    {kin_request_from_chat, WITH("'seed':1e20"), "seed", "Field 'seed': must be between", 0},
    {kin_request_from_chat, WITH("'repeat_penalty':0"), "repeat_penalty", "Field 'repeat_penalty': must be between", 0},
    {kin_request_from_chat, WITH("'stop':5"), "stop", "Field 'stop': type must be string or array, but is number", 0},
    {kin_request_from_chat, WITH("'stop':[1]"), "stop", "Field 'stop': type must be string, but is number", 0},
    {kin_request_from_chat, WITH("'stream_options':true"), "stream_options", "Field 'stream_options': type must be object", 0},
    {kin_request_from_chat, WITH("'stream_options':{'include_usage':1}"), "stream_options.include_usage",
     "Field 'stream_options.include_usage': type must be boolean, but is number", 0},
    {kin_request_from_chat, WITH("'logit_bias':5"), "logit_bias", "Field 'logit_bias': type must be object or array", 0},
    {kin_request_from_chat, WITH("'logit_bias':{'1':'x'}"), "logit_bias", "Field 'logit_bias': a bias must be a number", 0},
    {kin_request_from_chat, WITH("'logit_bias':{'99999999999':1}"), "logit_bias", "Field 'logit_bias': must be between 0 and", 0},
    {kin_request_from_chat, WITH("'logit_bias':[[1]]"), "logit_bias", "Field 'logit_bias': each element must be a pair", 0},
    {kin_request_from_chat, WITH("'logit_bias':[[-1,2]]"), "logit_bias", "Field 'logit_bias': must be between 0 and", 0},
    {kin_request_from_chat, WITH("'mirostat':2"), "mirostat", "Field 'mirostat': is not supported. Omit it, or send 0 (off)", 0},
    {kin_request_from_chat, WITH("'typical_p':0.5"), "typical_p", "Field 'typical_p': is not supported. Omit it, or send 1 (off)",
     0},
    {kin_request_from_chat, WITH("'top_n_sigma':1"), "top_n_sigma", "Field 'top_n_sigma': is not supported", 0},
    {kin_request_from_chat, WITH("'xtc_probability':0.1"), "xtc_probability", "Field 'xtc_probability': is not supported", 0},
    {kin_request_from_chat, WITH("'dry_multiplier':0.8"), "dry_multiplier", "Field 'dry_multiplier': is not supported", 0},
    {kin_request_from_chat, WITH("'dynatemp_range':0.1"), "dynatemp_range", "Field 'dynatemp_range': is not supported", 0},
    {kin_request_from_chat, WITH("'adaptive_target':0.5"), "adaptive_target", "Field 'adaptive_target': is not supported", 0},
    {kin_request_from_chat, WITH("'min_keep':2"), "min_keep", "Field 'min_keep': is not supported", 0},
    {kin_request_from_chat, WITH("'lora':[{'id':0,'scale':1}]"), "lora", "Field 'lora': LoRA adapters are not supported", 0},
    {kin_request_from_chat, WITH("'samplers':['top_p','top_k']"), "samplers", "Field 'samplers': the order must be", 0},
    {kin_request_from_chat, WITH("'samplers':['infill']"), "samplers", "Field 'samplers': unknown sampler 'infill'", 0},
    {kin_request_from_chat, WITH("'samplers':'k?'"), "samplers", "Field 'samplers': unknown sampler '?'", 0},
    {kin_request_from_chat, WITH("'samplers':[1]"), "samplers", "Field 'samplers': type must be string, but is number", 0},
    {kin_request_from_chat, WITH("'grammar':'x','json_schema':{}"), "grammar", "Cannot use both json_schema and grammar", 0},
    {kin_request_from_chat, WITH("'grammar':'x','tools':[" TOOL("f") "]"), "grammar", "Cannot use a grammar together with tools",
     0},
    {kin_request_from_chat, WITH("'json_schema':5"), "json_schema", "Field 'json_schema': type must be object, but is number", 0},
    {kin_request_from_chat, WITH("'response_format':{'type':'foo'}"), "response_format.type",
     "Field 'response_format.type': must be", 0},
    {kin_request_from_chat, WITH("'response_format':{'type':'json_schema'}"), "response_format.json_schema.schema",
     "Field 'response_format.json_schema.schema': is required", 0},
    {kin_request_from_chat, WITH("'response_format':{'type':'json_schema','json_schema':{'schema':[]}}"),
     "response_format.json_schema.schema", "Field 'response_format.json_schema.schema': type must be object, but is array", 0},
    {kin_request_from_chat, WITH("'tools':[{'type':'custom'}]"), "tools[0].type",
     "Field 'tools[0].type': must be 'function', but is 'custom'", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("") "]"), "tools[0].function.name",
     "Field 'tools[0].function.name': must be 1 to 64", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("a b") "]"), "tools[0].function.name",
     "Field 'tools[0].function.name': must be 1 to 64", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("a\\u0000b") "]"), "tools[0].function.name",
     "Field 'tools[0].function.name': must be 1 to 64", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("f") "," TOOL("f") "]"), "tools", "Field 'tools': two tools are named 'f'", 0},
    {kin_request_from_chat, WITH("'tools':[{'type':'function','function':{'name':'f','parameters':[]}}]"),
     "tools[0].function.parameters", "Field 'tools[0].function.parameters': type must be object, but is array", 0},
    {kin_request_from_chat, WITH("'tool_choice':'foo'"), "tool_choice", "Invalid tool_choice: foo", 0},
    {kin_request_from_chat, WITH("'tool_choice':'required'"), "tool_choice", "Field 'tool_choice': a call is required, but", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("f") "],'tool_choice':{'type':'function','function':{'name':'g'}}"),
     "tool_choice", "Field 'tool_choice': 'g' is not in tools", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("f") "],'tool_choice':" ALLOWED("auto", "g")),
     "tool_choice.allowed_tools.tools[0].function.name",
     "Field 'tool_choice.allowed_tools.tools[0].function.name': 'g' is not in tools", 0},
    {kin_request_from_chat, WITH("'tools':[" TOOL("f") "],'tool_choice':" ALLOWED("none", "f")), "tool_choice.allowed_tools.mode",
     "Field 'tool_choice.allowed_tools.mode': must be", 0},
    {kin_request_from_chat, WITH("'tool_choice':{'type':'allowed_tools'}"), "tool_choice.allowed_tools",
     "Field 'tool_choice.allowed_tools': is required", 0},
    {kin_request_from_chat, WITH("'tool_choice':{'type':'function'}"), "tool_choice", "Field 'tool_choice': an object must be",
     0},
    {kin_request_from_chat, WITH("'top_logprobs':2"), "top_logprobs", "top_logprobs requires logprobs to be set to true", 0},
    {kin_request_from_chat, WITH("'logprobs':true,'top_logprobs':101"), "top_logprobs",
     "Field 'top_logprobs': must be between 0 and 100", 0},
    {kin_request_from_chat, WITH("'chat_template_kwargs':{'enable_thinking':'true'}"), "chat_template_kwargs.enable_thinking",
     "Field 'chat_template_kwargs.enable_thinking': type must be boolean, but is string", 0},
    {kin_request_from_chat, WITH("'reasoning_format':'foo'"), "reasoning_format", "Field 'reasoning_format': must be", 0},
    {kin_request_from_chat, WITH("'thinking':{'type':'foo'}"), "thinking.type", "Field 'thinking.type': must be", 0},
    {kin_request_from_completions, "{}", "prompt", "'prompt' is required", 0},
    {kin_request_from_completions, PROMPT("'echo':true,'suffix':'y'"), "suffix", "Field 'suffix': cannot be combined with echo",
     0},
    {kin_request_from_completions, PROMPT("'suffix':1"), "suffix", "Field 'suffix': type must be string", 0},
    {kin_request_from_completions, "{'prompt':[[]]}", "prompt", "Field 'prompt': a prompt has no tokens", 0},
    {kin_request_from_completions, PROMPT("'n':2,'best_of':3,'stream':true"), "best_of",
     "Field 'best_of': cannot be combined with stream", 0},
    {kin_request_from_completions, PROMPT("'n':3,'best_of':2"), "best_of", "Field 'best_of': must be at least n, which is 3", 0},
    {kin_request_from_chat, WITH("'modalities':['text','audio']"), "modalities",
     "Field 'modalities': kin supports text output only", 0},
    {kin_request_from_completions, PROMPT("'best_of':129"), "best_of", "Field 'best_of': must be", 0},
    {kin_request_from_completions, PROMPT("'logprobs':-1"), "logprobs", "Field 'logprobs': must be between 0 and 100", 0},
    {kin_request_from_native, "{'prompt':[]}", "prompt", "\"prompt\" must not be empty", 0},
    {kin_request_from_native, "{'prompt':5}", "prompt", "Field 'prompt': type must be string or array, but is number", 0},
    {kin_request_from_native, "{'prompt':[-1]}", "prompt", "Prompt contains invalid tokens", 0},
    {kin_request_from_native, "{'prompt':[[1,null]]}", "prompt", "Field 'prompt': type must be number or string, but is null", 0},
    {kin_request_from_native, "{'prompt':[['a'],true]}", "prompt", "Field 'prompt': type must be string or array, but is boolean",
     0},
    {kin_request_from_native, "{'prompt':{'prompt_string':'a','multimodal_data':['b']}}", "prompt.multimodal_data",
     "Field 'prompt.multimodal_data': kin supports text only", 501},
    {kin_request_from_native, PROMPT("'response_fields':[5]"), "response_fields", "Field 'response_fields': type must be string",
     0},
};

static void halves_of_surrogate_pairs_become_replacement_characters(void **state) {
    (void)state;
    static const struct {
        const char *body, *text; // NULL: not JSON
    } cases[] = {{"[\"a\\ud83d\"]", "a\uFFFD"},
                 {"[\"\\uDE00b\"]", "\uFFFDb"},
                 {"[\"\\ud83d\\ud83d\\ude00\"]", "\uFFFD\U0001F600"},
                 {"[\"\\ud83d\\u0041\"]", "\uFFFDA"},
                 {"[\"\\\\ud83d\\udbff\"]", "\\ud83d\uFFFD"},
                 {"[\"\\ud83d\\\\\"]", "\uFFFD\\"},
                 {"[\"\\ud83d\"", NULL},
                 {"[\"\\ud8xx\"]", NULL},
                 {"[\"\\ud8", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kin_api_error err = {0};
        json_t *json = kin_request_parse((kin_str){cases[i].body, strlen(cases[i].body)}, &err);
        if (cases[i].text) assert_string_equal(json_string_value(json_array_get(json, 0)), cases[i].text);
        if (!cases[i].text) assert_null(json);
        if (!cases[i].text) assert_int_equal(err.status, 400);
        json_decref(json);
    }
}

static void what_is_wrong_is_refused_with_a_sentence_that_names_it(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const bad *b = &refused[i];
        kin_request request;
        kin_api_error err = {0};
        if (parse(b->parser, &request, b->body, &err) == 0) fail_msg("%s: was taken", b->body);
        if (strncmp(err.message, b->message, strlen(b->message)) != 0) fail_msg("%s: %s", b->body, err.message);
        assert_string_equal(err.param, b->param);
        assert_int_equal(err.status, b->status ? b->status : 400);
        assert_string_equal(err.type, b->status ? "not_supported_error" : "invalid_request_error");
        assert_null(request.body); // nothing is left to free
    }
}

static json_t *many(json_t *of, int n) {
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append(array, of);
    json_decref(of);
    return array;
}

static void too_much_is_refused(void **state) {
    (void)state;
    static char long_text[KIN_REQUEST_MAX_STOP_BYTES + 2];
    memset(long_text, 'x', sizeof long_text - 1);
    const struct {
        const char *field;
        json_t *value;
    } table[] = {
        {"stop", many(json_string("x"), KIN_REQUEST_MAX_STOPS + 1)},
        {"stop", json_string(long_text)},
        {"logit_bias", many(json_pack("[i,i]", 1, 1), KIN_REQUEST_MAX_BIAS + 1)},
        {"prompt", many(json_string("x"), KIN_REQUEST_MAX_PROMPTS + 1)},
        {"n", json_integer(KIN_REQUEST_MAX_CHOICES)}, // with 17 prompts
        {"response_fields", many(json_string("x"), KIN_REQUEST_MAX_FIELDS + 1)},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        kin_request request;
        kin_api_error err = {0};
        kin_request_defaults defaults = make_defaults();
        json_t *body = json_pack("{s:o, s:o}", "prompt", many(json_string("x"), 17), table[i].field, table[i].value);
        assert_int_equal(kin_request_from_native(&request, body, &defaults, &err), KIN_FAIL);
        assert_int_equal(err.status, 400);
        assert_string_equal(err.param, table[i].field);
    }
}

static void a_body_that_is_no_json_is_refused_with_its_place(void **state) {
    (void)state;
    kin_api_error err = {0};
    assert_null(kin_request_parse((kin_str){"{\n b", 4}, &err));
    assert_int_equal(err.status, 400);
    assert_non_null(strstr(err.message, "Bad JSON at line 2, column 2"));
    assert_null(kin_request_parse((kin_str){"", 0}, &err));
    assert_string_equal(err.message, "The body is empty; it must be JSON");
    assert_null(kin_request_parse((kin_str){"\"\xff\"", 3}, &err));
    assert_int_equal(err.status, 400);
    json_t *json = kin_request_parse((kin_str){"{\"a\":\"\\u0000\"}", 14}, &err);
    assert_int_equal(json_string_length(json_object_get(json, "a")), 1);
    json_decref(json);
}

static void expect_number(const char *text, double expected) {
    kin_api_error err = {0};
    char body[256];
    snprintf(body, sizeof body, "{\"s\":\"\\\"123456789012345678901 \\\\\",\"n\":%s,\"huge\":99999999999999999999}", text);
    json_t *json = kin_request_parse((kin_str){body, strlen(body)}, &err);
    if (!json) fail_msg("%s: %s", body, err.message);
    assert_string_equal(json_string_value(json_object_get(json, "s")), "\"123456789012345678901 \\");
    assert_true(json_number_value(json_object_get(json, "n")) == expected);
    assert_true(json_number_value(json_object_get(json, "huge")) == 99999999999999999999.0);
    json_decref(json);
}
#define expect_number(...) FROM_TEST(expect_number(__VA_ARGS__))

static void integers_beyond_63_bits_are_numbers(void **state) {
    (void)state;
    expect_number("18446744073709551615", 18446744073709551615.0);
    expect_number("-18446744073709551616", -18446744073709551616.0);
    expect_number("[1]", 0);
    expect_number("7", 7);
    expect_number("1234567890123456789012.5e-3", 1234567890123456789.0125);
    expect_number("0.1234567890123456789012", 0.1234567890123456789012);
    expect_number("1e0000000000000000000001", 10);
    expect_number("1E+0000000000000000000001", 10);
    expect_number("12345678901234567890123E-22", 1.2345678901234567890123);
    kin_api_error err = {0};
    const char bad[] = "{\"a\": 99999999999999999999, b";
    assert_null(kin_request_parse((kin_str){bad, sizeof bad - 1}, &err));
    assert_int_equal(err.status, 400);
    const char vast[] = "{\"a\": 1e999}"; // beyond the range of a double
    assert_null(kin_request_parse((kin_str){vast, sizeof vast - 1}, &err));
    assert_int_equal(err.status, 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_of_all_apis_go_where_they_belong),
        cmocka_unit_test(samplers_in_kins_order_are_taken_and_the_unlisted_turned_off),
        cmocka_unit_test(fields_of_chats_go_where_they_belong),
        cmocka_unit_test(messages_are_normalised),
        cmocka_unit_test(the_assistants_last_message_is_gone_on_with),
        cmocka_unit_test(prompts_are_one_or_several),
        cmocka_unit_test(fields_of_completions_and_of_the_native_api),
        cmocka_unit_test(halves_of_surrogate_pairs_become_replacement_characters),
        cmocka_unit_test(what_is_wrong_is_refused_with_a_sentence_that_names_it),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(a_body_that_is_no_json_is_refused_with_its_place),
        cmocka_unit_test(integers_beyond_63_bits_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
