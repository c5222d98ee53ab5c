// OpenAI's responses (serve/apis/responses/responses.h, kin_format_responses): bodies in, events and documents out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/apis/responses/responses.h"
#include "tests/api_case.h"
#include "tests/place.h"

// Removes the fields that a response repeats, which have their own tests, and the fields that are the same in all bodies.
static int translate(json_t **out, const json_t *body, kin_api_error *err) {
    int rc = kin_responses_to_chat(out, body, err);
    if (rc == 0) assert_int_equal(json_object_del(*out, KIN_RESPONSES_ECHO), 0);
    if (rc == 0) assert_true(json_is_false(json_object_get(*out, "continue_final_message")));
    if (rc == 0) json_object_del(*out, "continue_final_message");
    return rc;
}

static void expect(const char *body, const char *chat) {
    expect_chat(translate, body, chat);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

static void refuse(const char *body, int status, const char *param, const char *words) {
    expect_refused(translate, body, status, param, words);
}
#define refuse(...) FROM_TEST(refuse(__VA_ARGS__))

static void expect_messages(const char *input, const char *messages) {
    char body[2048], chat[2048];
    snprintf(body, sizeof body, "{'input':%s}", input);
    snprintf(chat, sizeof chat, "{'messages':%s}", messages);
    expect(body, chat);
}
#define expect_messages(...) FROM_TEST(expect_messages(__VA_ARGS__))

#define HI "'messages':[{'role':'user','content':'Hi'}]"

static void options_are_renamed_or_passed_on(void **state) {
    (void)state;
    expect("{'input':'Hi'}", "{" HI "}");
    expect("{'input':'Hi','model':'m','stream':true,'temperature':0.5,'top_p':0.9,'max_output_tokens':3,'seed':7,'top_k':4,"
           "'reasoning':{'effort':'low','summary':'auto'},'store':true,'include':[],'n':3,'top_logprobs':2}",
           "{" HI ",'model':'m','stream':true,'temperature':0.5,'top_p':0.9,'max_tokens':3,'seed':7,'top_k':4,"
           "'reasoning_effort':'low','logprobs':true,'top_logprobs':2}");
    expect("{'input':'Hi','include':['reasoning.encrypted_content','message.output_text.logprobs']}", "{" HI ",'logprobs':true}");
    expect("{'input':'Hi','include':['reasoning.encrypted_content',7]}", "{" HI "}");
    expect("{'input':'Hi','instructions':'Be kind.','top_logprobs':0}",
           "{'messages':[{'role':'system','content':'Be kind.'},{'role':'user','content':'Hi'}]}");
}

static void formats_of_text_are_response_formats(void **state) {
    (void)state;
    expect("{'input':'Hi','text':{'format':{'type':'text'},'verbosity':'low'}}", "{" HI "}");
    expect("{'input':'Hi','text':{'format':{'type':'json_object'}}}", "{" HI ",'response_format':{'type':'json_object'}}");
    expect("{'input':'Hi','text':{'format':{'type':'json_schema','name':'n','strict':true,'schema':{'type':'object'}}}}",
           "{" HI
           ",'response_format':{'type':'json_schema','json_schema':{'name':'n','strict':true,'schema':{'type':'object'}}}}");
}

static void items_become_messages(void **state) {
    (void)state;
    expect_messages(
        "[{'role':'developer','content':'d'},{'type':'message','role':'user','content':[{'type':'input_text','text':'a'},"
        "{'type':'input_text','text':'b'}]},{'role':'assistant','content':[{'type':'output_text','text':'c'},"
        "{'type':'refusal','refusal':'no'}]},{'role':'system','content':'s'}]",
        "[{'role':'developer','content':'d'},{'role':'user','content':'a\\nb'},{'role':'assistant','content':'c\\nno'},"
        "{'role':'system','content':'s'}]");
}

static void reasoning_text_and_calls_in_a_row_are_one_message(void **state) {
    (void)state;
    expect_messages(
        "[{'role':'user','content':'u'},{'type':'reasoning','summary':[],'content':[{'type':'reasoning_text','text':'hm'}]},"
        "{'type':'message','role':'assistant','content':[{'type':'output_text','text':'so'}]},"
        "{'type':'function_call','call_id':'c1','name':'f','arguments':'{}'},"
        "{'type':'custom_tool_call','call_id':'c2','name':'g','input':'any'},"
        "{'type':'function_call_output','call_id':'c1','output':'one'},"
        "{'type':'custom_tool_call_output','call_id':'c2','output':[{'type':'input_text','text':'two'}]},"
        "{'type':'web_search_call','id':'w','status':'completed'},{'role':'assistant','content':'x'},{'role':'assistant','"
        "content':'y'}]",
        "[{'role':'user','content':'u'},{'role':'assistant','content':'so','reasoning_content':'hm','tool_calls':["
        "{'id':'c1','type':'function','function':{'name':'f','arguments':'{}'}},"
        "{'id':'c2','type':'function','function':{'name':'g','arguments':'{\\\"input\\\":\\\"any\\\"}'}}]},"
        "{'role':'tool','tool_call_id':'c1','content':'one'},{'role':'tool','tool_call_id':'c2','content':'two'},"
        "{'role':'assistant','content':'x\\ny'}]");
    expect_messages("[{'type':'reasoning','summary':[{'type':'summary_text','text':'s'}],'encrypted_content':'e'},"
                    "{'type':'function_call','call_id':'c','name':'f','arguments':'{}'},{'role':'user','content':'u'}]",
                    "[{'role':'assistant','content':null,'reasoning_content':'s','tool_calls':["
                    "{'id':'c','type':'function','function':{'name':'f','arguments':'{}'}}]},{'role':'user','content':'u'}]");
}

#define F "{'type':'function','name':'f','description':'d','parameters':{'type':'object'},'strict':true}"
#define G "{'type':'function','name':'g'}"
#define CHAT_F "{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'},'strict':true}}"
#define CHAT_G "{'type':'function','function':{'name':'g'}}"

static void functions_are_tools_and_others_are_left_out(void **state) {
    (void)state;
    expect("{'input':'Hi','tools':[" F ",{'type':'web_search'}," G "]}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_F "," CHAT_G "]}");
    expect("{'input':'Hi','tools':[{'type':'web_search'},{'type':'mcp','name':'x'}],'parallel_tool_calls':false}", "{" HI "}");
    expect("{'input':'Hi','tools':[" G "],'parallel_tool_calls':false,'tool_choice':'required'}",
           "{" HI ",'parallel_tool_calls':false,'tools':[" CHAT_G "],'tool_choice':'required'}");
    expect("{'input':'Hi','tools':[" G "],'tool_choice':{'type':'function','name':'g'}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_G "],'tool_choice':{'type':'function','function':{'name':'g'}}}");
    expect("{'input':'Hi','tools':[" F "," G "],'tool_choice':{'type':'allowed_tools','mode':'required','tools':["
           "{'type':'function','name':'g'}]}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_G "],'tool_choice':'required'}");
}

#define SPACE "{'type':'namespace','name':'s','tools':[" G ",{'type':'x'}]}"
#define CUSTOM "{'type':'custom','name':'patch','description':'d','format':{'type':'grammar','syntax':'lark','definition':'x'}}"
#define CHAT_S_G "{'type':'function','function':{'name':'s__g'}}"
#define CHAT_CUSTOM                                                                                                              \
    "{'type':'function','function':{'name':'patch','description':'d','parameters':{'type':'object','properties':{'input':{"      \
    "'type':'string','description':'The tool\\u0027s whole input, as plain text'}},'required':['input'],"                        \
    "'additionalProperties':false}}}"

static void namespaces_and_custom_tools_are_functions_for_the_model(void **state) {
    (void)state;
    expect("{'input':'Hi','tools':[" SPACE "," CUSTOM "],'tool_choice':{'type':'custom','name':'patch'}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_S_G "," CHAT_CUSTOM
           "],'tool_choice':{'type':'function','function':{"
           "'name':'patch'}}}");
    expect("{'input':'Hi','tools':[" SPACE "," CUSTOM "],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':"
           "'custom','name':'patch'}]}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_CUSTOM "],'tool_choice':'auto'}");
    expect("{'input':'Hi','tools':[" SPACE "],'tool_choice':{'type':'function','namespace':'s','name':'g'}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_S_G
           "],'tool_choice':{'type':'function','function':{'name':'s__g'}}}");
    expect("{'input':'Hi','tools':[" SPACE "," CUSTOM "],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':"
           "'function','namespace':'s','name':'g'}]}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_S_G "],'tool_choice':'auto'}");
    expect("{'input':'Hi','tools':[" SPACE "," CUSTOM "],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':"
           "'namespace','name':'s'}]}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_S_G "],'tool_choice':'auto'}");
    expect_messages(
        "[{'type':'function_call','call_id':'c','namespace':'s','name':'g','arguments':'{}'},{'role':'user','content':'u'}]",
        "[{'role':'assistant','content':null,'tool_calls':["
        "{'id':'c','type':'function','function':{'name':'s__g','arguments':'{}'}}]},{'role':'user','content':'u'}]");
    refuse("{'input':'Hi','tools':[{'type':'namespace','tools':[]}]}", 400, "tools[0].name", "is required");
    refuse("{'input':'Hi','tools':[{'type':'namespace','name':'s','tools':[{'type':'function'}]}]}", 400,
           "tools[0].tools[0].name", "is required");
}

static void a_function_whose_full_name_is_too_long_is_left_out(void **state) {
    (void)state;
#define LONG_NAME "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl"
    expect("{'input':'Hi','tools':[{'type':'namespace','name':'s','tools':[{'type':'function','name':'" LONG_NAME "'}," G "]}]}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_S_G "]}");
}

#define USER "{'role':'user','content':'Hi'}"
#define ITEM_TOOLS(tools) "{'type':'additional_tools','role':'developer','id':'at','tools':[" tools "]}"
#define SPACE_OF_CUSTOM "{'type':'namespace','name':'n','tools':[" CUSTOM "]}"

// As newer models of Codex do: the body's list is empty, or has only those that are not in the items.
static void items_of_the_input_may_bring_tools(void **state) {
    (void)state;
    expect("{'input':[" ITEM_TOOLS(SPACE ",{'type':'web_search'}") "," USER "],'tools':[]}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_S_G "]}");
    expect("{'input':[" ITEM_TOOLS(F "," G) "," USER ",{'type':'tool_search_call','call_id':'c'},{'type':'tool_search_output',"
                                            "'call_id':'c','tools':[" SPACE "," G "]}],'tools':[" G "]}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_G "," CHAT_F "," CHAT_S_G "]}");
    expect("{'input':[" ITEM_TOOLS(F "," G) "," USER "],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':"
                                            "'function','name':'g'}]}}",
           "{" HI ",'parallel_tool_calls':true,'tools':[" CHAT_G "],'tool_choice':'auto'}");
    expect("{'input':[{'type':'additional_tools','role':'developer'}," USER "]}", "{" HI "}");
    refuse("{'input':[" USER "," ITEM_TOOLS("{'type':'function'}") "]}", 400, "input[1].tools[0].name", "is required");
    refuse("{'input':[" USER ",{'type':'additional_tools','tools':7}]}", 400, "input[1].tools", "array");
}

// Of tools that no model is told, too, because each is compared with each that is allowed.
static void more_tools_than_a_request_may_have_are_refused(void **state) {
    (void)state;
    enum { N = 1025, N_ITEMS = 5 };
    static const char
        one[] = "{'type':'x'},",
        *const forms[] = {
            "{'input':'Hi','tools':[%s{'type':'x'}]}",
            "{'input':'Hi','tools':[{'type':'namespace','name':'s','tools':[%s{'type':'x'}]}]}",
            "{'input':'Hi','tools':[],'tool_choice':{'type':'allowed_tools','mode':'auto','tools':[%s{'type':'x'}]}}"};
    static const char *const fields[] = {"tools", "tools[0].tools", "tool_choice.tools"};
    char *many = calloc(N, sizeof one), *body = malloc(N * sizeof one + 256);
    assert_true(many && body);
    for (int i = 0; i + 1 < N; i++) memcpy(many + (size_t)i * (sizeof one - 1), one, sizeof one);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char *at = strstr(forms[i], "%s");
        sprintf(body, "%.*s%s%s", (int)(at - forms[i]), forms[i], many, at + 2);
        refuse(body, 400, fields[i], "more than 1024 tools");
    }
    free(many);
    free(body);
    kin_text_buffer items = {0}; // of all items together
    kin_text_print(&items, "{'input':[");
    for (int i = 0; i < N_ITEMS; i++) {
        kin_text_print(&items, "%s{'type':'additional_tools','tools':[", i > 0 ? "," : "");
        for (int k = 0; k < 250; k++) kin_text_print(&items, "%s{'type':'function','name':'f%d_%d'}", k > 0 ? "," : "", i, k);
        kin_text_print(&items, "]}");
    }
    kin_text_print(&items, "]}");
    refuse(items.at, 400, "input[4].tools", "more than 1024 tools");
    kin_text_fini(&items);
}

static void what_is_missing_wrong_or_stored_elsewhere_is_named(void **state) {
    (void)state;
    refuse("7", 400, "", "must be a JSON object");
    refuse("{}", 400, "input", "is required");
    refuse("{'input':[]}", 400, "input", "at least one");
    refuse("{'input':7}", 400, "input", "type must be string or array, but is number");
    refuse("{'input':'Hi','include':'x'}", 400, "include", "array");
    refuse("{'input':['a']}", 400, "input[0]", "type must be object");
    refuse("{'input':[{'role':'user'}]}", 400, "input[0].content", "is required");
    refuse("{'input':[{'role':'x','content':''}]}", 400, "input[0].role", "'x'");
    refuse("{'input':[{'type':'item_reference','id':'i'}]}", 400, "input[0].type", "send the items");
    refuse("{'input':[{'type':'x'}]}", 400, "input[0].type", "'x' is not supported");
    refuse("{'input':[{'type':'function_call','call_id':'c','name':'f'}]}", 400, "input[0].arguments", "is required");
    refuse("{'input':[{'type':'function_call_output','call_id':'c'}]}", 400, "input[0].output", "is required");
    refuse("{'input':[{'role':'user','content':[{'type':'input_image','image_url':'u'}]}]}", 501, "input[0].content[0].type",
           "not input_image");
    refuse("{'input':[{'role':'user','content':[{'type':'x'}]}]}", 400, "input[0].content[0].type", "'x'");
    refuse("{'input':'Hi','previous_response_id':'resp_1'}", 400, "previous_response_id", "whole conversation");
    refuse("{'input':'Hi','conversation':{'id':'c'}}", 400, "conversation", "whole conversation");
    refuse("{'input':'Hi','background':true}", 400, "background", "stream");
    refuse("{'input':'Hi','max_output_tokens':'x'}", 400, "max_output_tokens", "integer");
    refuse("{'input':'Hi','reasoning':'low'}", 400, "reasoning", "object");
    refuse("{'input':'Hi','tools':{}}", 400, "tools", "array");
    refuse("{'input':'Hi','tools':[{'type':'function'}]}", 400, "tools[0].name", "is required");
    refuse("{'input':'Hi','tool_choice':{'type':'x'}}", 400, "tool_choice.type", "function, custom or allowed_tools");
    refuse("{'input':'Hi','text':{'format':{'type':'json_schema'}}}", 400, "text.format.schema", "is required");
    refuse("{'input':'Hi','text':{'format':{'type':'grammar'}}}", 400, "text.format.type", "json_object");
}

// ---- answers

#define ECHO                                                                                                                     \
    "'background':false,'instructions':'i','max_output_tokens':null,'max_tool_calls':null,'metadata':{'k':'v'},"                 \
    "'parallel_tool_calls':true,'previous_response_id':null,'prompt_cache_key':null,'reasoning':{'effort':null,'summary':null}," \
    "'safety_identifier':null,'service_tier':'default','store':false,'temperature':0.8,'text':{'format':{'type':'text'}},"       \
    "'tool_choice':'auto','tools':[" G "],'top_logprobs':0,'top_p':1.0,'truncation':'disabled','user':null"
#define RESPONSE(status, completed, why, output, usage)                                                                          \
    "{'id':'resp_ID','object':'response','created_at':1000,'model':'demo'," ECHO ",'status':'" status                            \
    "','completed_at':" completed ",'error':null,'incomplete_details':" why ",'output':[" output "],'usage':" usage "}"
#define USAGE                                                                                                                    \
    "{'input_tokens':9,'input_tokens_details':{'cached_tokens':4},'output_tokens':7,"                                            \
    "'output_tokens_details':{'reasoning_tokens':2},'total_tokens':16}"
#define CUT "{'reason':'max_output_tokens'}"

static void begin(written *w, bool stream) {
    kin_err err;
    kin_api_error api_err;
    json_t *body = json_of("{'input':'Hi','instructions':'i','metadata':{'k':'v'},'tools':[" G "],'store':true}");
    *w = (written){.request = {.stream = stream, .is_chat = true, .sampler = {.temperature = 0.8f, .top_p = 1}},
                   .context = {.model = "demo", .id = "ID", .created_s = 1000, .n_choices = 1},
                   .format = &kin_format_responses};
    assert_int_equal(kin_responses_to_chat(&w->request.body, body, &api_err), 0);
    json_decref(body);
    w->context.request = &w->request;
    assert_int_equal(w->format->open(&w->writer, &w->context, &err), 0);
    w->format->start(w->writer, &w->out);
}
#define begin(...) FROM_TEST(begin(__VA_ARGS__))

// Compares the events with the wanted ones, which have no sequence numbers: the events' numbers must count from 0.
static void expect_sequence(written *w, const char *const *want, size_t n) {
    json_t *events = events_of(&w->out), *event;
    size_t i;
    assert_int_equal(json_array_size(events), n);
    json_array_foreach(events, i, event) {
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), i);
        json_object_del(event, "sequence_number");
        expect_json(json_incref(event), want[i]);
    }
    json_decref(events);
    drop_writing(w);
}
#define expect_sequence(...) FROM_TEST(expect_sequence(__VA_ARGS__))

#define REASONING_ITEM(status, content)                                                                                          \
    "{'id':'rs_ID0','type':'reasoning','status':'" status "','summary':[],'content':[" content "]}"
#define MESSAGE_ITEM(status, content)                                                                                            \
    "{'id':'msg_ID1','type':'message','role':'assistant','status':'" status "','content':[" content "]}"
#define CALL_ITEM(status, arguments)                                                                                             \
    "{'id':'fc_ID2','type':'function_call','status':'" status "','call_id':'id_f','name':'f','arguments':'" arguments "'}"
#define THOUGHT(text) "{'type':'reasoning_text','text':'" text "'}"
#define SAID(text) "{'type':'output_text','text':'" text "','annotations':[],'logprobs':[]}"
#define REASONING REASONING_ITEM("completed", THOUGHT("hm"))
#define MESSAGE MESSAGE_ITEM("completed", SAID("so"))
#define CREATED(type) "{'type':'response." type "','response':" RESPONSE("in_progress", "null", "null", "", "null") "}"
#define ADDED(index, item) "{'type':'response.output_item.added','output_index':" index ",'item':" item "}"
#define DONE(index, item) "{'type':'response.output_item.done','output_index':" index ",'item':" item "}"
#define PART(item, index, type, more)                                                                                            \
    "{'type':'response." type "','item_id':'" item "','output_index':" index ",'content_index':0," more "}"
#define CALL(type, more) "{'type':'response.function_call_arguments." type "','item_id':'fc_ID2','output_index':2," more "}"
#define ARGUMENTS "{\\\"x\\\":1}"

static void write_all_kinds(written *w) {
    write_event(w, KIN_REPLY_REASONING, "h");
    write_event(w, KIN_REPLY_REASONING, "m");
    write_event(w, KIN_REPLY_TEXT, "so");
    write_call(w, "f", "{\"x\":", "1}");
}

static void every_event_says_what_it_is_of(void **state) {
    static const char *const want[] = {
        CREATED("created"),
        CREATED("in_progress"),
        ADDED("0", REASONING_ITEM("in_progress", "")),
        PART("rs_ID0", "0", "content_part.added", "'part':" THOUGHT("")),
        PART("rs_ID0", "0", "reasoning_text.delta", "'delta':'h'"),
        PART("rs_ID0", "0", "reasoning_text.delta", "'delta':'m'"),
        PART("rs_ID0", "0", "reasoning_text.done", "'text':'hm'"),
        PART("rs_ID0", "0", "content_part.done", "'part':" THOUGHT("hm")),
        DONE("0", REASONING),
        ADDED("1", MESSAGE_ITEM("in_progress", "")),
        PART("msg_ID1", "1", "content_part.added", "'part':" SAID("")),
        PART("msg_ID1", "1", "output_text.delta", "'delta':'so','logprobs':[]"),
        PART("msg_ID1", "1", "output_text.done", "'text':'so','logprobs':[]"),
        PART("msg_ID1", "1", "content_part.done", "'part':" SAID("so")),
        DONE("1", MESSAGE),
        ADDED("2", CALL_ITEM("in_progress", "")),
        CALL("delta", "'delta':'{\\\"x\\\":'"),
        CALL("delta", "'delta':'1}'"),
        CALL("done", "'name':'f','arguments':'" ARGUMENTS "'"),
        DONE("2", CALL_ITEM("completed", ARGUMENTS)),
        "{'type':'response.completed','response':" RESPONSE(
            "completed", "1000", "null", REASONING "," MESSAGE "," CALL_ITEM("completed", ARGUMENTS), USAGE) "}",
    };
    (void)state;
    written w;
    begin(&w, true);
    write_all_kinds(&w);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    expect_sequence(&w, want, sizeof want / sizeof want[0]);
}

static json_t *output_of(const char *tools, const char *name, const char *arguments, const char *more) {
    char body[1024];
    kin_api_error err;
    kin_err why;
    written w;
    begin(&w, false);
    snprintf(body, sizeof body, "{'input':'Hi','tools':[%s]}", tools);
    json_t *with_tools = json_of(body);
    json_decref(w.request.body);
    assert_int_equal(kin_responses_to_chat(&w.request.body, with_tools, &err), 0);
    json_decref(with_tools);
    w.format->close(w.writer);
    assert_int_equal(w.format->open(&w.writer, &w.context, &why), 0);
    write_call(&w, name, arguments, more);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    json_t *response = json_loadb(w.out.at, w.out.len, 0, NULL), *output = json_incref(json_object_get(response, "output"));
    json_decref(response);
    drop_writing(&w);
    return output;
}

static void calls_have_the_names_that_the_client_knows(void **state) {
    (void)state;
#define ITEM(rest) "[{'id':'fc_ID0','status':'completed'," rest "}]"
    expect_json(output_of(SPACE "," CUSTOM, "s__g", "{}", NULL),
                ITEM("'type':'function_call','call_id':'id_s__g','namespace':'s','name':'g','arguments':'{}'"));
    expect_json(output_of(SPACE "," CUSTOM, "s__h", "{}", NULL),
                ITEM("'type':'function_call','call_id':'id_s__h','name':'s__h','arguments':'{}'"));
    expect_json(output_of(SPACE ",{'type':'function','name':'s__g'}", "s__g", "{}", NULL),
                ITEM("'type':'function_call','call_id':'id_s__g','name':'s__g','arguments':'{}'"));
    expect_json(output_of(SPACE "," CUSTOM, "patch", "{\"input\":", "\"a\\nb\"}"),
                ITEM("'type':'custom_tool_call','call_id':'id_patch','name':'patch','input':'a\\nb'"));
    expect_json(output_of(SPACE "," SPACE_OF_CUSTOM, "n__patch", "{\"input\":\"a\"}", NULL),
                ITEM("'type':'custom_tool_call','call_id':'id_n__patch','namespace':'n','name':'patch','input':'a'"));
    expect_json(output_of("],'input':[" USER "," ITEM_TOOLS(SPACE) "],'user':['u'", "s__g", "{}", NULL),
                ITEM("'type':'function_call','call_id':'id_s__g','namespace':'s','name':'g','arguments':'{}'"));
    expect_json(output_of(CUSTOM, "patch", "{\"input\":7}", NULL),
                ITEM("'type':'custom_tool_call','call_id':'id_patch','name':'patch','input':''"));
}

static void a_document_is_the_last_event_s_response(void **state) {
    (void)state;
    written w;
    begin(&w, false);
    write_all_kinds(&w);
    assert_int_equal(w.out.len, 0);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    expect_document(&w, RESPONSE("completed", "1000", "null",
                                 REASONING_ITEM("completed", THOUGHT("hm")) "," MESSAGE_ITEM(
                                     "completed", SAID("so")) "," CALL_ITEM("completed", ARGUMENTS),
                                 USAGE));
}

static void probabilities_are_those_of_the_text(void **state) {
    (void)state;
    static const char probs[] = "[{'id':7,'token':'a','bytes':[97],'logprob':-1.0,'top_logprobs':"
                                "[{'id':8,'token':'b','bytes':[98],'logprob':-0.5}]}]";
    for (int stream = 0; stream < 2; stream++) {
        written w;
        begin(&w, stream);
        write_probable(&w, KIN_REPLY_REASONING, "hm");
        write_probable(&w, KIN_REPLY_TEXT, "a");
        end_writing(&w, KIN_FINISH_EOS, "");
        json_t *events = stream ? events_of(&w.out) : read_json(w.out.at, w.out.len), *last = events, *event;
        size_t i, n_with = 0;
        if (stream) json_array_foreach(events, i, event) {
                json_t *list = json_object_get(event, "logprobs");
                if (list) expect_json(json_incref(list), probs);
                n_with += list != NULL;
            }
        assert_int_equal(n_with, stream ? 2 : 0); // delta and done
        if (stream) last = json_object_get(json_array_get(events, json_array_size(events) - 1), "response");
        last = json_array_get(json_object_get(last, "output"), 1);
        last = json_array_get(json_object_get(last, "content"), 0);
        expect_json(json_incref(json_object_get(last, "logprobs")), probs);
        json_decref(events);
        drop_writing(&w);
    }
}

static void a_response_at_the_limit_is_incomplete(void **state) {
    (void)state;
    written w;
    begin(&w, true);
    write_event(&w, KIN_REPLY_REASONING, "hm");
    w.out.len = 0;
    end_writing(&w, KIN_FINISH_LENGTH, "");
    json_t *events = events_of(&w.out), *last = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_string_value(json_object_get(last, "type")), "response.incomplete");
    expect_json(json_incref(json_object_get(last, "response")),
                RESPONSE("incomplete", "null", CUT, REASONING_ITEM("incomplete", THOUGHT("hm")), USAGE));
    json_decref(events);
    drop_writing(&w);
}

static void a_completed_response_has_a_message_though_the_model_only_reasoned(void **state) {
    (void)state;
    written w;
    begin(&w, false);
    write_event(&w, KIN_REPLY_REASONING, "hm");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_document(&w, RESPONSE("completed", "1000", "null",
                                 REASONING_ITEM("completed", THOUGHT("hm")) "," MESSAGE_ITEM("completed", SAID("")), USAGE));
    begin(&w, true);
    write_event(&w, KIN_REPLY_REASONING, "hm");
    w.out.len = 0;
    end_writing(&w, KIN_FINISH_EOS, "");
    json_t *events = events_of(&w.out), *event;
    static const char *const types[] = {
        "response.reasoning_text.done", "response.content_part.done",  "response.output_item.done",
        "response.output_item.added",   "response.content_part.added", "response.output_text.done",
        "response.content_part.done",   "response.output_item.done",   "response.completed"};
    size_t i;
    assert_int_equal(json_array_size(events), sizeof types / sizeof *types);
    json_array_foreach(events, i, event) assert_string_equal(json_string_value(json_object_get(event, "type")), types[i]);
    json_decref(events);
    drop_writing(&w);
}

static void a_stream_that_breaks_ends_with_a_failed_response(void **state) {
    (void)state;
    written w;
    kin_api_error err;
    begin(&w, true);
    kin_text_print(&w.out, "%s", w.format->ping);
    assert_true(strncmp(w.out.at + w.out.len - 4, "\n:\n\n", 4) == 0); // a comment, which no client takes for an event
    w.out.len -= 3;
    kin_api_error_set(&err, 500, NULL, "lost");
    (w.format->fail)(w.writer, &err, &w.out); // fail() is a macro of cmocka
    json_t *events = events_of(&w.out), *last = json_array_get(events, 2);
    assert_string_equal(json_string_value(json_object_get(last, "type")), "response.failed");
    last = json_object_get(last, "response");
    expect_json(json_incref(json_object_get(last, "error")), "{'code':'server_error','message':'lost'}");
    assert_string_equal(json_string_value(json_object_get(last, "status")), "failed");
    json_decref(events);
    drop_writing(&w);
}

// Returns the output that a client builds from the events, without fields that only whole items have.
static json_t *built_from(json_t *events) {
    json_t *output = json_array(), *event, *item = NULL, *part;
    size_t i;
    json_array_foreach(events, i, event) {
        const char *type = json_string_value(json_object_get(event, "type"));
        part = json_array_get(json_object_get(item, "content"), 0);
        if (json_object_get(event, "output_index") && strcmp(type, "response.output_item.added") != 0)
            assert_int_equal(json_integer_value(json_object_get(event, "output_index")), json_array_size(output) - 1);
        if (strcmp(type, "response.output_item.added") == 0) {
            item = json_deep_copy(json_object_get(event, "item"));
            json_array_append_new(output, item);
        } else if (strcmp(type, "response.content_part.added") == 0) {
            json_array_append_new(json_object_get(item, "content"), json_deep_copy(json_object_get(event, "part")));
        } else if (strcmp(type, "response.content_part.done") == 0) {
            assert_true(json_equal(part, json_object_get(event, "part")));
        } else if (strcmp(type, "response.function_call_arguments.done") == 0) {
            assert_true(json_equal(json_object_get(item, "arguments"), json_object_get(event, "arguments")));
        } else if (strcmp(type, "response.output_item.done") == 0) {
            json_object_set(item, "status", json_object_get(json_object_get(event, "item"), "status"));
            assert_true(json_equal(item, json_object_get(event, "item")));
        } else if (json_object_get(event, "delta")) {
            add_text_to(part ? part : item, part ? "text" : "arguments", json_object_get(event, "delta"));
        }
    }
    return output;
}
#define built_from(...) FROM_TEST(built_from(__VA_ARGS__))

static void a_stream_builds_the_document(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        written stream, whole;
        begin(&stream, true);
        begin(&whole, false);
        write_random(&stream, seed);
        write_random(&whole, seed);
        json_t *events = events_of(&stream.out), *built = built_from(events), *document = read_json(whole.out.at, whole.out.len);
        json_t *last = json_object_get(json_array_get(events, json_array_size(events) - 1), "response");
        if (!json_equal(last, document) || !json_equal(built, json_object_get(document, "output")))
            fail_msg("seed %d", (int)seed);
        json_decref(events);
        json_decref(built);
        json_decref(document);
        drop_writing(&stream);
        drop_writing(&whole);
    }
}

static void errors_have_the_shape_of_openai(void **state) {
    (void)state;
    kin_api_error err;
    kin_api_error_set(&err, 400, "input", "no");
    expect_error(&kin_format_responses, err,
                 "{'error':{'code':400,'message':'no','type':'invalid_request_error','param':'input'}}");
    expect_error(
        &kin_format_responses,
        (kin_api_error){.status = 400, .type = "exceed_context_size_error", .message = "x", .n_prompt = 90, .n_ctx = 50},
        "{'error':{'code':400,'message':'x','type':'exceed_context_size_error','param':null,'n_prompt_tokens':90,'n_ctx':50}}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_renamed_or_passed_on),
        cmocka_unit_test(formats_of_text_are_response_formats),
        cmocka_unit_test(items_become_messages),
        cmocka_unit_test(reasoning_text_and_calls_in_a_row_are_one_message),
        cmocka_unit_test(functions_are_tools_and_others_are_left_out),
        cmocka_unit_test(namespaces_and_custom_tools_are_functions_for_the_model),
        cmocka_unit_test(items_of_the_input_may_bring_tools),
        cmocka_unit_test(more_tools_than_a_request_may_have_are_refused),
        cmocka_unit_test(a_function_whose_full_name_is_too_long_is_left_out),
        cmocka_unit_test(what_is_missing_wrong_or_stored_elsewhere_is_named),
        cmocka_unit_test(calls_have_the_names_that_the_client_knows),
        cmocka_unit_test(every_event_says_what_it_is_of),
        cmocka_unit_test(a_document_is_the_last_event_s_response),
        cmocka_unit_test(probabilities_are_those_of_the_text),
        cmocka_unit_test(a_response_at_the_limit_is_incomplete),
        cmocka_unit_test(a_completed_response_has_a_message_though_the_model_only_reasoned),
        cmocka_unit_test(a_stream_that_breaks_ends_with_a_failed_response),
        cmocka_unit_test(a_stream_builds_the_document),
        cmocka_unit_test(errors_have_the_shape_of_openai),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
