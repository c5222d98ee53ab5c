// Anthropic's messages API (serve/apis/anthropic/messages.h, kin_format_messages): translated bodies, events and documents.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/apis/anthropic/messages.h"
#include "tests/api_case.h"
#include "tests/place.h"

#define USER "'messages':[{'role':'user','content':'Hi'}]"
#define OFF "'chat_template_kwargs':{'enable_thinking':false}"
#define CHAT_USER "'max_tokens':4096," OFF ",'messages':[{'role':'user','content':'Hi'}]"

static void expect(const char *body, const char *chat) {
    expect_chat(kin_messages_to_chat, body, chat);
}
#define expect(...) FROM_TEST(expect(__VA_ARGS__))

static void refuse(const char *body, int status, const char *param, const char *words) {
    expect_refused(kin_messages_to_chat, body, status, param, words);
}
#define refuse(...) FROM_TEST(refuse(__VA_ARGS__))

// Expects a body with these messages to be translated into a chat with chat_messages.
static void expect_messages(const char *messages, const char *chat_messages) {
    char body[2048], chat[2048];
    snprintf(body, sizeof body, "{'max_tokens':5,'messages':%s}", messages);
    snprintf(chat, sizeof chat, "{'max_tokens':5," OFF ",'messages':%s}", chat_messages);
    expect(body, chat);
}
#define expect_messages(...) FROM_TEST(expect_messages(__VA_ARGS__))

static void options_are_renamed_or_passed_on(void **state) {
    (void)state;
    expect("{" USER "}", "{" CHAT_USER "}");
    expect("{" USER ",'model':'m','max_tokens':3,'stream':true,'temperature':0.5,'top_p':0.9,'top_k':4,'seed':7,"
           "'stop_sequences':['a','b'],'metadata':{'user_id':'u'},'n':3,'unknown':1}",
           "{'messages':[{'role':'user','content':'Hi'}],'model':'m','max_tokens':3,'stream':true,'temperature':0.5,'top_p':0.9,"
           "'top_k':4,'seed':7,'stop':['a','b']," OFF "}");
    expect("{" USER ",'temperature':null,'tools':null,'max_tokens':null}", "{" CHAT_USER "}");
}

static void system_is_the_first_message(void **state) {
    (void)state;
    expect("{'max_tokens':1,'system':'Be kind.'," USER "}",
           "{'max_tokens':1," OFF ",'messages':[{'role':'system','content':'Be kind.'},{'role':'user','content':'Hi'}]}");
    expect("{'max_tokens':1,'system':[{'type':'text','text':'Be','cache_control':{'type':'ephemeral'}},"
           "{'type':'text','text':'kind.'}]," USER "}",
           "{'max_tokens':1," OFF ",'messages':[{'role':'system','content':'Be\\nkind.'},{'role':'user','content':'Hi'}]}");
    expect("{'max_tokens':1,'system':''," USER "}", "{'max_tokens':1," OFF ",'messages':[{'role':'user','content':'Hi'}]}");
}

static void prompts_that_differ_in_the_billing_header_are_the_same(void **state) {
    (void)state;
    static const char same[] = "{'max_tokens':1," OFF ",'messages':[{'role':'system','content':'Be kind.'},"
                               "{'role':'user','content':'Hi'}]}";
    expect("{'max_tokens':1,'system':[{'type':'text','text':'x-anthropic-billing-header: cc_version=2.1.0.a1; cch=0f3a1;'},"
           "{'type':'text','text':'Be kind.'}]," USER "}",
           same);
    expect("{'max_tokens':1,'system':'x-anthropic-billing-header: cc_version=2.1.0.b7; cch=77777;\\nBe kind.'," USER "}", same);
    expect("{'max_tokens':1,'system':'x-anthropic-billing-header: cch=1;'," USER "}",
           "{'max_tokens':1," OFF ",'messages':[{'role':'user','content':'Hi'}]}");
}

static void a_turn_with_tools_becomes_calls_and_results(void **state) {
    (void)state;
    expect_messages(
        "[{'role':'user','content':[{'type':'text','text':'a'},{'type':'text','text':'b'}]},"
        "{'role':'assistant','content':[{'type':'thinking','thinking':'hm','signature':''},"
        "{'type':'redacted_thinking','data':'xx'},{'type':'text','text':'so'},"
        "{'type':'tool_use','id':'t1','name':'f','input':{'x':1}},{'type':'tool_use','id':'t2','name':'g','input':{}}]},"
        "{'role':'user','content':[{'type':'tool_result','tool_use_id':'t1','content':'one'},"
        "{'type':'tool_result','tool_use_id':'t2','is_error':true,'content':[{'type':'text','text':'two'}]},"
        "{'type':'tool_result','tool_use_id':'t3'},{'type':'text','text':'go on'}]}]",
        "[{'role':'user','content':'a\\nb'},"
        "{'role':'assistant','content':'so','reasoning_content':'hm','tool_calls':["
        "{'id':'t1','type':'function','function':{'name':'f','arguments':'{\\\"x\\\":1}'}},"
        "{'id':'t2','type':'function','function':{'name':'g','arguments':'{}'}}]},"
        "{'role':'tool','tool_call_id':'t1','content':'one'},"
        "{'role':'tool','tool_call_id':'t2','content':'Error:\\ntwo'},{'role':'tool','tool_call_id':'t3','content':''},"
        "{'role':'user','content':'go on'}]");
    expect_messages("[{'role':'assistant','content':[{'type':'tool_use','id':'t','name':'f','input':{}}]}]",
                    "[{'role':'assistant','content':null,'tool_calls':["
                    "{'id':'t','type':'function','function':{'name':'f','arguments':'{}'}}]}]");
}

static void text_in_documents_is_read(void **state) {
    (void)state;
    expect_messages(
        "[{'role':'user','content':[{'type':'document','source':{'type':'text','media_type':'text/plain','data':'d'}},"
        "{'type':'document','source':{'type':'content','content':[{'type':'text','text':'e'}]}},"
        "{'type':'search_result','source':'u','title':'t','content':[{'type':'text','text':'f'}]}]}]",
        "[{'role':'user','content':'d\\ne\\nf'}]");
}

static void messages_of_one_role_in_a_row_are_one(void **state) {
    (void)state;
    expect_messages(
        "[{'role':'user','content':'a'},{'role':'user','content':'b'},{'role':'assistant','content':'c'},"
        "{'role':'assistant','content':[{'type':'tool_use','id':'t','name':'f','input':{}}]},{'role':'user','content':"
        "[{'type':'tool_result','tool_use_id':'t','content':'d'}]},{'role':'user','content':'e'}]",
        "[{'role':'user','content':'a\\nb'},{'role':'assistant','content':'c','tool_calls':["
        "{'id':'t','type':'function','function':{'name':'f','arguments':'{}'}}]},"
        "{'role':'tool','tool_call_id':'t','content':'d'},{'role':'user','content':'e'}]");
}

static void empty_contents_are_messages_too(void **state) {
    (void)state;
    expect_messages("[{'role':'user','content':''},{'role':'assistant','content':[]},{'role':'system','content':'s'}]",
                    "[{'role':'user','content':''},{'role':'assistant','content':''},{'role':'system','content':'s'}]");
}

#define TOOL "'tools':[{'name':'f','description':'d','input_schema':{'type':'object'}}]"
#define CHAT_TOOL "'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':{'type':'object'}}}]"

// Expects the tools of a conversation, of which `g` is deferred.
static void expect_tools(const char *messages, const char *text, const char *tools) {
    char body[2048], chat[2048];
    snprintf(body, sizeof body,
             "{'max_tokens':5,'messages':[{'role':'user','content':'Hi'},%s],'tools':[{'name':'f','input_schema':{}},"
             "{'name':'g','input_schema':{},'defer_loading':true}]}",
             messages);
    snprintf(chat, sizeof chat,
             "{'max_tokens':5," OFF ",'messages':[{'role':'user','content':'Hi'},%s],'tools':[%s],'parallel_tool_calls':true}",
             text, tools);
    expect(body, chat);
}
#define expect_tools(...) FROM_TEST(expect_tools(__VA_ARGS__))

#define FUNCTION(name) "{'type':'function','function':{'name':'" name "','parameters':{}}}"

static void a_deferred_tool_is_told_once_a_message_names_it(void **state) {
    (void)state;
    expect_tools("{'role':'system','content':'s'}", "{'role':'system','content':'s'}", FUNCTION("f"));
    expect_tools("{'role':'user','content':[{'type':'tool_result','tool_use_id':'t','content':[{'type':'tool_reference',"
                 "'tool_name':'g'}]}]}",
                 "{'role':'tool','tool_call_id':'t','content':'The tool g is available now.'}", FUNCTION("f") "," FUNCTION("g"));
    expect_tools("{'role':'system','content':[{'type':'tool_addition','tool':{'type':'tool_reference','name':'g'}}]}",
                 "{'role':'system','content':'The tool g is available now.'}", FUNCTION("f") "," FUNCTION("g"));
}

static void a_deferred_tool_may_be_chosen(void **state) {
    (void)state;
    expect("{'max_tokens':5,'messages':[{'role':'user','content':'Hi'}],'tools':[{'name':'g','input_schema':{},'defer_loading':"
           "true}],"
           "'tool_choice':{'type':'tool','name':'g'}}",
           "{'max_tokens':5," OFF ",'messages':[{'role':'user','content':'Hi'}],'tools':[" FUNCTION(
               "g") "],'parallel_tool_calls':true,'tool_choice':{'type':'function','function':{'name':'g'}}}");
}

static void messages_add_and_remove_tools(void **state) {
    (void)state;
    expect_tools(
        "{'role':'system','content':[{'type':'text','text':'s'},{'type':'tool_removal','tool':{'type':'tool_reference',"
        "'name':'f'}},{'type':'tool_addition','tool':{'type':'tool_definition','definition':{'name':'h','input_schema':{}}}}]}",
        "{'role':'system','content':'s\\nThe tool f is no longer available.\\nThe tool h is available now.'}", FUNCTION("h"));
    refuse("{'messages':[{'role':'system','content':[{'type':'tool_addition','tool':{'name':'a b'}}]}]}", 400,
           "messages[0].content[0].tool.name", "must be 1 to 64 letters, digits, '_', '-' or '.'");
    refuse("{'messages':[{'role':'system','content':[{'type':'tool_addition'}]}]}", 400, "messages[0].content[0].tool",
           "is required");
    refuse("{'messages':[{'role':'system','content':[{'type':'tool_removal','tool':{'type':'tool_reference'}}]}]}", 400,
           "messages[0].content[0].tool.tool_name", "is required");
    refuse("{'messages':[{'role':'system','content':[{'type':'tool_addition','tool':{'definition':{'name':'h'}}}]}]}", 400,
           "input_schema", "is required");
}

static void tools_and_choices_of_tools_are_mapped(void **state) {
    (void)state;
    static const char *const choices[][2] = {
        {"{'type':'auto'}", "'parallel_tool_calls':true,'tool_choice':'auto'"},
        {"{'type':'any'}", "'parallel_tool_calls':true,'tool_choice':'required'"},
        {"{'type':'none'}", "'parallel_tool_calls':true,'tool_choice':'none'"},
        {"{'type':'tool','name':'f'}", "'parallel_tool_calls':true,'tool_choice':{'type':'function','function':{'name':'f'}}"},
        {"{'type':'auto','disable_parallel_tool_use':true}", "'parallel_tool_calls':false,'tool_choice':'auto'"},
        {"null", "'parallel_tool_calls':true"},
    };
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        char body[512], chat[512];
        snprintf(body, sizeof body, "{" USER "," TOOL ",'tool_choice':%s}", choices[i][0]);
        snprintf(chat, sizeof chat, "{" CHAT_USER "," CHAT_TOOL ",%s}", choices[i][1]);
        expect(body, chat);
    }
    expect("{" USER ",'tools':[{'type':'web_search_20250305','name':'web_search'}]}", "{" CHAT_USER "}");
}

static void thinking_is_off_unless_it_is_asked_for(void **state) {
    (void)state;
    expect("{" USER ",'max_tokens':1,'thinking':{'type':'enabled','budget_tokens':2048}}",
           "{'max_tokens':1,'messages':[{'role':'user','content':'Hi'}],'thinking_budget_tokens':2048,"
           "'chat_template_kwargs':{'enable_thinking':true}}");
    expect("{" USER ",'max_tokens':1,'thinking':{'type':'adaptive'},'output_config':{'effort':'low'}}",
           "{'max_tokens':1,'messages':[{'role':'user','content':'Hi'}],'reasoning_effort':'low',"
           "'chat_template_kwargs':{'enable_thinking':true}}");
    expect("{" USER ",'thinking':{'type':'disabled'}}", "{" CHAT_USER "}");
    expect("{" USER ",'max_tokens':1,'chat_template_kwargs':{'enable_thinking':true}}",
           "{'max_tokens':1,'messages':[{'role':'user','content':'Hi'}],'chat_template_kwargs':{'enable_thinking':true}}");
}

static void a_schema_for_the_answer_is_a_response_format(void **state) {
    (void)state;
    static const char chat[] = "{" CHAT_USER ",'response_format':{'type':'json_schema','json_schema':"
                               "{'name':'output','schema':{'type':'object'},'strict':true}}}";
    expect("{" USER ",'output_config':{'format':{'type':'json_schema','schema':{'type':'object'}}}}", chat);
    expect("{" USER ",'output_format':{'type':'json_schema','schema':{'type':'object'}}}", chat);
}

static void what_is_missing_or_wrong_is_named_by_its_path(void **state) {
    (void)state;
    refuse("[]", 400, "", "must be a JSON object");
    refuse("{}", 400, "messages", "Field 'messages': is required");
    refuse("{'messages':[]}", 400, "messages", "at least one");
    refuse("{'messages':[7]}", 400, "messages[0]", "type must be object, but is number");
    refuse("{'messages':[{'content':'a'}]}", 400, "messages[0].role", "is required");
    refuse("{'messages':[{'role':'tool','content':'a'}]}", 400, "messages[0].role", "'tool'");
    refuse("{'messages':[{'role':'user'}]}", 400, "messages[0].content", "is required");
    refuse("{'messages':[{'role':'user','content':[{'text':'a'}]}]}", 400, "messages[0].content[0].type", "is required");
    refuse("{'messages':[{'role':'user','content':[{'type':'text'}]}]}", 400, "messages[0].content[0].text", "is required");
    refuse("{'messages':[{'role':'user','content':[{'type':'tool_use','id':'t','name':'f','input':{}}]}]}", 400,
           "messages[0].content[0].type", "'tool_use' is not supported here");
    refuse("{'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'t','name':'f'}]}]}", 400,
           "messages[0].content[0].input", "is required");
    refuse("{" USER ",'max_tokens':'x'}", 400, "max_tokens", "type must be integer, but is string");
    refuse("{" USER ",'max_tokens':1.5}", 400, "max_tokens", "type must be integer");
    refuse("{" USER ",'stop_sequences':'x'}", 400, "stop_sequences", "array");
    refuse("{" USER ",'stop_sequences':['x',7]}", 400, "stop_sequences", "each must be a string, but one is number");
    refuse("{" USER ",'system':7}", 400, "system", "type must be string or array, but is number");
    refuse("{" USER ",'tools':[{'name':'f'}]}", 400, "tools[0].input_schema", "is required");
    refuse("{" USER ",'tool_choice':{'type':'tool'}}", 400, "tool_choice.name", "is required");
    refuse("{" USER ",'tool_choice':{'type':'x'}}", 400, "tool_choice.type", "'x'");
    refuse("{" USER ",'thinking':{'type':'x'}}", 400, "thinking.type", "enabled");
    refuse("{'messages':[{'role':'user','content':[{'type':'image','source':{}}]}]}", 501, "messages[0].content[0].type",
           "not image");
    refuse("{'messages':[{'role':'user','content':[{'type':'document','source':{'type':'base64'}}]}]}", 501,
           "messages[0].content[0].type", "not document");
}

// ---- answers

#define MESSAGE "'id':'msg_ID','type':'message','role':'assistant','model':'demo'"
#define USAGE "'usage':{'input_tokens':5,'cache_creation_input_tokens':0,'cache_read_input_tokens':4,'output_tokens':7}"
#define START                                                                                                                    \
    "{'type':'message_start','message':{" MESSAGE ",'content':[],'stop_reason':null,'stop_sequence':null,"                       \
    "'usage':{'input_tokens':9,'cache_creation_input_tokens':0,'cache_read_input_tokens':0,'output_tokens':0}}}"
#define STOP(reason, word)                                                                                                       \
    "{'type':'message_delta','delta':{'stop_reason':'" reason "','stop_sequence':" word "}," USAGE "},{'type':'message_stop'}"

static void write_all_kinds(written *w) {
    write_event(w, KIN_REPLY_REASONING, "h");
    write_event(w, KIN_REPLY_REASONING, "m");
    write_event(w, KIN_REPLY_TEXT, "so");
    write_call(w, "f", "{\"x\":", "1}");
    write_call(w, "g", "{}", NULL);
}

static void each_block_is_closed_before_the_next_begins(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_messages, true);
    write_all_kinds(&w);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    expect_events(
        &w,
        "[" START ",{'type':'content_block_start','index':0,'content_block':{'type':'thinking','thinking':'','signature':''}},"
        "{'type':'content_block_delta','index':0,'delta':{'type':'thinking_delta','thinking':'h'}},"
        "{'type':'content_block_delta','index':0,'delta':{'type':'thinking_delta','thinking':'m'}},"
        "{'type':'content_block_delta','index':0,'delta':{'type':'signature_delta','signature':''}},"
        "{'type':'content_block_stop','index':0},"
        "{'type':'content_block_start','index':1,'content_block':{'type':'text','text':''}},"
        "{'type':'content_block_delta','index':1,'delta':{'type':'text_delta','text':'so'}},"
        "{'type':'content_block_stop','index':1},"
        "{'type':'content_block_start','index':2,'content_block':{'type':'tool_use','id':'id_f','name':'f','input':{}}},"
        "{'type':'content_block_delta','index':2,'delta':{'type':'input_json_delta','partial_json':'{\\\"x\\\":'}},"
        "{'type':'content_block_delta','index':2,'delta':{'type':'input_json_delta','partial_json':'1}'}},"
        "{'type':'content_block_stop','index':2},"
        "{'type':'content_block_start','index':3,'content_block':{'type':'tool_use','id':'id_g','name':'g','input':{}}},"
        "{'type':'content_block_delta','index':3,'delta':{'type':'input_json_delta','partial_json':'{}'}},"
        "{'type':'content_block_stop','index':3}," STOP("tool_use", "null") "]");
}

static void a_document_holds_all_blocks(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_messages, false);
    write_all_kinds(&w);
    assert_int_equal(w.out.len, 0);
    end_writing(&w, KIN_FINISH_TOOL_CALLS, "");
    expect_document(&w, "{" MESSAGE ",'content':[{'type':'thinking','thinking':'hm','signature':''},{'type':'text','text':'so'},"
                        "{'type':'tool_use','id':'id_f','name':'f','input':{'x':1}},"
                        "{'type':'tool_use','id':'id_g','name':'g','input':{}}],"
                        "'stop_reason':'tool_use','stop_sequence':null," USAGE "}");
}

static void a_call_that_is_cut_off_is_none(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_messages, false);
    write_event(&w, KIN_REPLY_TOOL_BEGIN, "f");
    write_event(&w, KIN_REPLY_TOOL_ARGUMENTS, "{\"x");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_document(&w, "{" MESSAGE ",'content':[],'stop_reason':'max_tokens','stop_sequence':null," USAGE "}");
    begin_writing(&w, &kin_format_messages, true); // in a stream the incomplete arguments are not valid JSON
    write_event(&w, KIN_REPLY_TOOL_BEGIN, "f");
    write_event(&w, KIN_REPLY_TOOL_ARGUMENTS, "{\"x");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_events(&w,
                  "[" START ",{'type':'content_block_start','index':0,'content_block':{'type':'tool_use','id':'id_f','name':'f',"
                  "'input':{}}},{'type':'content_block_delta','index':0,'delta':{'type':'input_json_delta','partial_json':"
                  "'{\\\"x'}},{'type':'content_block_stop','index':0}," STOP("max_tokens", "null") "]");
    begin_writing(&w, &kin_format_messages, true);
    write_event(&w, KIN_REPLY_TOOL_BEGIN, "f");
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_events(&w, "[" START "," STOP("max_tokens", "null") "]");
}

static void each_end_has_its_reason(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_messages, true);
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_events(&w, "[" START "," STOP("end_turn", "null") "]");
    begin_writing(&w, &kin_format_messages, true);
    end_writing(&w, KIN_FINISH_LENGTH, "");
    expect_events(&w, "[" START "," STOP("max_tokens", "null") "]");
    begin_writing(&w, &kin_format_messages, true);
    end_writing(&w, KIN_FINISH_STOP_WORD, "END");
    expect_events(&w, "[" START "," STOP("stop_sequence", "'END'") "]");
}

static void text_that_is_no_utf8_is_mended(void **state) {
    (void)state;
    written w;
    begin_writing(&w, &kin_format_messages, false);
    write_event(&w, KIN_REPLY_TEXT, "a\xff\xc3");
    end_writing(&w, KIN_FINISH_EOS, "");
    expect_document(&w, "{" MESSAGE ",'content':[{'type':'text','text':'a\xef\xbf\xbd\xef\xbf\xbd'}],"
                        "'stop_reason':'end_turn','stop_sequence':null," USAGE "}");
}

static void an_idle_stream_is_pinged_and_a_broken_one_told(void **state) {
    (void)state;
    written w;
    kin_api_error err;
    begin_writing(&w, &kin_format_messages, true);
    kin_text_print(&w.out, "%s", w.format->ping);
    kin_api_error_set(&err, 503, NULL, "lost");
    (w.format->fail)(w.writer, &err, &w.out); // fail() is a macro of cmocka
    expect_events(&w, "[" START ",{'type':'ping'},{'type':'error','error':{'type':'overloaded_error','message':'lost'}}]");
}

// Returns the message that a client builds from the events.
static json_t *built_from(json_t *events) {
    json_t *message = NULL, *content = NULL, *event;
    size_t i;
    json_array_foreach(events, i, event) {
        const char *type = json_string_value(json_object_get(event, "type"));
        json_t *delta = json_object_get(event, "delta");
        json_t *block = json_array_get(content, json_array_size(content) - 1);
        if (strcmp(type, "message_start") == 0) {
            message = json_deep_copy(json_object_get(event, "message"));
            content = json_object_get(message, "content");
        } else if (strcmp(type, "content_block_start") == 0) {
            json_array_append_new(content, json_deep_copy(json_object_get(event, "content_block")));
        } else if (strcmp(type, "content_block_delta") == 0) {
            assert_int_equal(json_integer_value(json_object_get(event, "index")), json_array_size(content) - 1);
            const char *kind = json_string_value(json_object_get(delta, "type"));
            const char *key = strcmp(kind, "text_delta") == 0        ? "text"
                              : strcmp(kind, "thinking_delta") == 0  ? "thinking"
                              : strcmp(kind, "signature_delta") == 0 ? "signature"
                                                                     : "partial_json";
            add_text_to(block, key, json_object_get(delta, key));
        } else if (strcmp(type, "content_block_stop") == 0 && json_object_get(block, "partial_json")) {
            json_t *input = json_loads(json_string_value(json_object_get(block, "partial_json")), 0, NULL);
            json_object_del(block, "partial_json");
            if (!input) json_array_remove(content, json_array_size(content) - 1); // the call was cut off
            if (input) json_object_set_new(block, "input", input);
        } else if (strcmp(type, "message_delta") == 0) {
            json_object_update(message, delta);
            json_object_set(message, "usage", json_object_get(event, "usage"));
        }
    }
    json_decref(events);
    return message;
}
#define built_from(...) FROM_TEST(built_from(__VA_ARGS__))

static void a_stream_builds_the_document(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        written stream, whole;
        begin_writing(&stream, &kin_format_messages, true);
        begin_writing(&whole, &kin_format_messages, false);
        write_random(&stream, seed);
        write_random(&whole, seed);
        json_t *built = built_from(events_of(&stream.out)), *document = read_json(whole.out.at, whole.out.len);
        if (!json_equal(built, document)) fail_msg("seed %d", (int)seed);
        json_decref(built);
        json_decref(document);
        drop_writing(&stream);
        drop_writing(&whole);
    }
}

static void errors_have_the_names_of_the_api(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
        {413, "request_too_large"},     {429, "rate_limit_error"},     {500, "api_error"},        {501, "invalid_request_error"},
        {503, "overloaded_error"},      {504, "timeout_error"},        {529, "overloaded_error"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        kin_api_error err;
        char want[128];
        kin_api_error_set(&err, types[i].status, NULL, "no");
        snprintf(want, sizeof want, "{'type':'error','error':{'type':'%s','message':'no'}}", types[i].type);
        expect_error(&kin_format_messages, err, want);
    }
    expect_error(
        &kin_format_messages,
        (kin_api_error){.status = 400, .type = "exceed_context_size_error", .message = "x", .n_prompt = 90, .n_ctx = 50},
        "{'type':'error','error':{'type':'invalid_request_error','message':'prompt is too long: 90 tokens > 50 maximum'}}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_renamed_or_passed_on),
        cmocka_unit_test(system_is_the_first_message),
        cmocka_unit_test(prompts_that_differ_in_the_billing_header_are_the_same),
        cmocka_unit_test(a_turn_with_tools_becomes_calls_and_results),
        cmocka_unit_test(text_in_documents_is_read),
        cmocka_unit_test(messages_of_one_role_in_a_row_are_one),
        cmocka_unit_test(empty_contents_are_messages_too),
        cmocka_unit_test(a_deferred_tool_is_told_once_a_message_names_it),
        cmocka_unit_test(a_deferred_tool_may_be_chosen),
        cmocka_unit_test(messages_add_and_remove_tools),
        cmocka_unit_test(tools_and_choices_of_tools_are_mapped),
        cmocka_unit_test(thinking_is_off_unless_it_is_asked_for),
        cmocka_unit_test(a_schema_for_the_answer_is_a_response_format),
        cmocka_unit_test(what_is_missing_or_wrong_is_named_by_its_path),
        cmocka_unit_test(each_block_is_closed_before_the_next_begins),
        cmocka_unit_test(a_document_holds_all_blocks),
        cmocka_unit_test(a_call_that_is_cut_off_is_none),
        cmocka_unit_test(each_end_has_its_reason),
        cmocka_unit_test(text_that_is_no_utf8_is_mended),
        cmocka_unit_test(an_idle_stream_is_pinged_and_a_broken_one_told),
        cmocka_unit_test(a_stream_builds_the_document),
        cmocka_unit_test(errors_have_the_names_of_the_api),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
