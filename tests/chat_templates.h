// Short chat templates in the form of the models', for tests of the formats that are found from them.
#pragma once

#include "pure/chat/format.h"

#define TOOLS "{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
#define REASONING "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
#define BEGIN TOOLS "{% for m in messages %}<|im_start|>{{ m.role }}\n" REASONING "{% if m.content %}{{ m.content }}{% endif %}"
#define END "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define CHAT(calls) BEGIN "{% if m.tool_calls %}" calls "{% endif %}" END
#define EACH(call) "{% for c in m.tool_calls %}" call "{% endfor %}"
#define LIST(call) "[" EACH("{% if not loop.first %}, {% endif %}" call) "]"
#define NAME "{{ c.function.name }}"
#define ARGUMENTS "{{ c.function.arguments | tojson }}"
#define OBJECT "{\"name\": \"" NAME "\", \"arguments\": " ARGUMENTS "}"
#define PARAMETERS(each) "{% for k, v in c.function.arguments.items() %}" each "{% endfor %}"
#define TEXT_OR_JSON "{{ v if v is string else v | tojson }}"
#define BAR "\xef\xbd\x9c"
#define GAP "\xe2\x96\x81"
#define DS(word) "<" BAR "tool" GAP word BAR ">"
#define CALLS_BEGIN DS("calls" GAP "begin")
#define CALLS_END DS("calls" GAP "end")
#define CALL_BEGIN DS("call" GAP "begin")
#define CALL_END DS("call" GAP "end")
#define PYTHON_CALL NAME "(" PARAMETERS("{{ k }}={{ py(v) }}{% if not loop.last %}, {% endif %}") ")"
// As Python's repr, with double quotes.
#define PY                                                                                                                       \
    "{% macro py(v) %}{% if v is boolean %}{{ 'True' if v else 'False' }}{% elif v is none %}None{% elif v is string or v is "   \
    "number %}{{ v | tojson }}{% elif v is mapping %}{% raw %}{{% endraw %}{% for k, x in v.items() %}{{ k | tojson }}: {{ "     \
    "py(x) }}{% if not loop.last %}, {% endif %}{% endfor %}}{% else %}[{% for x in v %}{{ py(x) }}{% if not loop.last %}, {% "  \
    "endif %}{% endfor %}]{% endif %}{% endmacro %}"
#define GEMMA_VALUE                                                                                                              \
    "{% macro gv(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is boolean %}{{ 'true' if v else 'false' }}{% elif v is " \
    "none %}null{% elif v is mapping %}{{ '{' }}{% for k, x in v | dictsort %}{{ k }}:{{ gv(x) }}{% if not loop.last %},{% "     \
    "endif %}{% endfor %}}{% elif v is number %}{{ v }}{% else %}[{% for x in v %}{{ gv(x) }}{% if not loop.last %},{% endif "   \
    "%}{% endfor %}]{% endif %}{% endmacro %}"
#define ARGUMENT_TYPE                                                                                                            \
    "{{ 'boolean' if v is boolean else 'null' if v is none else 'number' if v is number else 'string' if v is string else "      \
    "'object' if v is mapping else 'array' }}"

typedef struct model {
    const char *name, *source;
    kin_chat_known known;     // KIN_CHAT_PLAIN: the format is derived
    const char *header, *end; // around what the model writes in a message
} model;

#define CHATML "<|im_start|>assistant\n", "<|im_end|>\n"

static const model models[] = {
    {"Hermes", CHAT(EACH("<tool_call>\n" OBJECT "\n</tool_call>{% if not loop.last %}\n{% endif %}")), KIN_CHAT_HERMES, CHATML},
    {"Qwen3-Coder",
     CHAT(EACH("\n<tool_call>\n<function=" NAME
               ">\n" PARAMETERS("<parameter={{ k }}>\n" TEXT_OR_JSON "\n</parameter>\n") "</function>\n</tool_call>")),
     KIN_CHAT_XML, CHATML},
    {"Llama 3",
     TOOLS "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{% if m.tool_calls %}{% if "
           "m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}" EACH(
               "{\"name\": \"" NAME "\", \"parameters\": " ARGUMENTS
               "}") "{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}{% if add_generation_prompt "
                    "%}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
     KIN_CHAT_LLAMA, "assistant<|end_header_id|>\n\n", "<|eot_id|>"},
    {"Mistral Nemo", CHAT("[TOOL_CALLS]" LIST("{\"name\": \"" NAME "\", \"arguments\": " ARGUMENTS ", \"id\": \"{{ c.id }}\"}")),
     KIN_CHAT_MISTRAL, CHATML},
    {"Mistral Small 3.2", CHAT(EACH("[TOOL_CALLS]" NAME "[CALL_ID]{{ c.id }}[ARGS]" ARGUMENTS)), KIN_CHAT_MISTRAL_LABELS, CHATML},
    {"Magistral", CHAT(EACH("[TOOL_CALLS]" NAME "[ARGS]" ARGUMENTS)), KIN_CHAT_MISTRAL_LABELS, CHATML},
    {"DeepSeek V3",
     TOOLS "{% for m in messages %}{% if m.role == 'user' %}<" BAR "User" BAR ">{{ m.content }}{% elif m.content is none %}<" BAR
           "Assistant" BAR ">" CALLS_BEGIN EACH("{% if not loop.first %}\n{% endif %}" CALL_BEGIN "function" DS("sep") NAME
                                                "\n```json\n{{ c.function.arguments + '\\n```' }}" CALL_END) CALLS_END
     "<" BAR "end" GAP "of" GAP "sentence" BAR ">{% else %}<" BAR "Assistant" BAR ">{{ m.content }}<" BAR "end" GAP "of" GAP
     "sentence" BAR ">{% endif %}{% endfor %}{% if add_generation_prompt %}<" BAR "Assistant" BAR ">{% endif %}",
     KIN_CHAT_DEEPSEEK, "<" BAR "Assistant" BAR ">", "<" BAR "end" GAP "of" GAP "sentence" BAR ">"},
    {"DeepSeek V3.1", CHAT(CALLS_BEGIN EACH(CALL_BEGIN NAME DS("sep") ARGUMENTS CALL_END) CALLS_END), KIN_CHAT_DEEPSEEK_31,
     CHATML},
    {"DeepSeek V3.2",
     CHAT("\n\n<" BAR "DSML" BAR "function_calls>" EACH("\n<" BAR "DSML" BAR "invoke name=\"" NAME "\">" PARAMETERS(
         "\n<" BAR "DSML" BAR "parameter name=\"{{ k }}\" string=\"{{ 'true' if v is "
         "string else 'false' }}\">" TEXT_OR_JSON "</" BAR "DSML" BAR
         "parameter>") "\n</" BAR "DSML" BAR "invoke>") "\n</" BAR "DSML" BAR "function_calls>"),
     KIN_CHAT_DSML, CHATML},
    {"GLM 4.5",
     CHAT(EACH("\n<tool_call>" NAME PARAMETERS("\n<arg_key>{{ k }}</arg_key>\n<arg_value>" TEXT_OR_JSON
                                               "</arg_value>") "\n</tool_call>")),
     KIN_CHAT_GLM, CHATML},
    {"GLM 4.7",
     CHAT(
         EACH("<tool_call>" NAME PARAMETERS("<arg_key>{{ k }}</arg_key><arg_value>" TEXT_OR_JSON "</arg_value>") "</tool_call>")),
     KIN_CHAT_GLM, CHATML},
    {"Kimi K2",
     CHAT("<|tool_calls_section_begin|>" EACH("<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" ARGUMENTS
                                              "<|tool_call_end|>") "<|tool_calls_section_end|>"),
     KIN_CHAT_KIMI, CHATML},
    {"Kimi K3",
     CHAT("<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>" EACH(
         "<|open|>call tool=\"" NAME "\" index=\"{{ loop.index }}\"<|sep|>" PARAMETERS(
             "<|open|>argument key=\"{{ k }}\" type=\"" ARGUMENT_TYPE "\"<|sep|>" TEXT_OR_JSON
             "<|close|>argument<|sep|>") "<|close|>call<|"
                                         "sep|>") "<|"
                                                  "close|>tools<|sep|><|close|>message<|sep|>"),
     KIN_CHAT_KIMI_3, CHATML},
    {"MiniMax M2",
     CHAT("\n<minimax:tool_call>\n" EACH("<invoke name=\"" NAME "\">\n" PARAMETERS("<parameter name=\"{{ k }}\">" TEXT_OR_JSON
                                                                                   "</parameter>\n") "</invoke>\n") "</minimax:"
                                                                                                                    "tool_call>"),
     KIN_CHAT_MINIMAX, CHATML},
    {"Seed-OSS",
     CHAT(EACH("\n<seed:tool_call>\n<function=" NAME
               ">\n" PARAMETERS("<parameter={{ k }}>" TEXT_OR_JSON "</parameter>\n") "</function>\n</seed:tool_call>")),
     KIN_CHAT_SEED, CHATML},
    {"gemma 4", GEMMA_VALUE CHAT(EACH("<|tool_call>call:" NAME "{{ gv(c.function.arguments) }}<tool_call|>")), KIN_CHAT_GEMMA,
     CHATML},
    {"LFM2", PY CHAT("<|tool_call_start|>" LIST(PYTHON_CALL) "<|tool_call_end|>"), KIN_CHAT_LFM, CHATML},
    {"Olmo 3", PY CHAT("<function_calls>\n" EACH(PYTHON_CALL "\n") "</function_calls>"), KIN_CHAT_OLMO, CHATML},
    {"Llama 4", PY CHAT(LIST(PYTHON_CALL)), KIN_CHAT_PYTHONIC, CHATML},
    {"Command R7B",
     CHAT("<|START_ACTION|>[\n" EACH("    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"" NAME
                                     "\", \"parameters\": " ARGUMENTS "}{{ ',\\n' if not loop.last else '\\n' }}") "]<|END_"
                                                                                                                   "ACTION|>"),
     KIN_CHAT_COMMAND, CHATML},
    {"Granite 3", CHAT("<|tool_call|>" LIST(OBJECT)), KIN_CHAT_GRANITE, CHATML},
    {"Nemotron Nano 2", CHAT("<TOOLCALL>" LIST(OBJECT) "</TOOLCALL>"), KIN_CHAT_NEMOTRON, CHATML},
    {"Apertus", CHAT("<|tools_prefix|>" LIST("{\"" NAME "\": " ARGUMENTS "}") "<|tools_suffix|>"), KIN_CHAT_APERTUS, CHATML},
    {"MiniMax M1", CHAT("<tool_calls>\n" EACH(OBJECT "\n") "</tool_calls>"), KIN_CHAT_MINIMAX_1, CHATML},
    {"Functionary 3.1", CHAT(EACH("<function=" NAME ">" ARGUMENTS "</function>")), KIN_CHAT_FUNCTION, CHATML},
    {"Firefunction 2", CHAT("functools" LIST(OBJECT)), KIN_CHAT_FIREFUNCTION, CHATML},
    {"Functionary 3.2",
     TOOLS "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{% if m.role == 'assistant' %}{% if "
           "m.content %}>>>all\n{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}{{ '>>>' + c.function.name + '\\n' + "
           "c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}{% if "
           "add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n>>>{% endif %}",
     KIN_CHAT_RECIPIENTS, "assistant<|end_header_id|>\n\n>>>", "<|eot_id|>"},
    {"GigaChat 3",
     TOOLS "{% macro say(role, text) %}{{ role + '<|role_sep|>\\n' + text + '<|message_sep|>\\n\\n' }}{% endmacro %}{% for m in "
           "messages %}{{ say('function result' if m.role == 'tool' else m.role, m.content or '') }}{% if m.tool_calls %}{% set "
           "c = m.tool_calls[0].function %}{{ say('function call', '{\"name\": \"' ~ c.name ~ '\", \"arguments\": ' ~ "
           "(c.arguments | tojson) ~ '}') }}{% endif %}{% if loop.last and add_generation_prompt and m.role != 'assistant' %}{{ "
           "'assistant<|role_sep|>\\n' }}{% endif %}{% endfor %}",
     KIN_CHAT_GIGACHAT, "assistant<|role_sep|>\n", "<|message_sep|>\n\n"},
    {"GigaChat 3.1",
     TOOLS "{% for m in messages %}{{ m.role }}<|role_sep|>\n{{ m.content or '' }}{% if m.tool_calls %}{% set c = "
           "m.tool_calls[0] %}<|function_call|>" OBJECT "{% endif %}<|message_sep|>\n\n{% if loop.last and add_generation_prompt "
           "and m.role != 'assistant' %}{{ 'assistant<|role_sep|>\\n' }}{% endif %}{% endfor %}",
     KIN_CHAT_PLAIN, "assistant<|role_sep|>\n", "<|message_sep|>\n\n"},
    {"Llama 4 in JSON",
     TOOLS "{% for m in messages %}<|header_start|>{{ m.role }}<|header_end|>\n\n{% if m.tool_calls %}" EACH(
         "{\"name\": \"" NAME "\", \"parameters\": " ARGUMENTS
         "}") "{% else %}{{ m.content }}{% endif %}<|eot|>{% endfor %}{% if add_generation_prompt "
              "%}<|header_start|>assistant<|header_end|>\n\n{% endif %}",
     KIN_CHAT_LLAMA, "assistant<|header_end|>\n\n", "<|eot|>"},
    {"Command R+",
     TOOLS
     "{% for m in messages %}{% if m.role == 'assistant' %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{{ m.content | trim }}{% "
     "if m.tool_calls is defined %}{{ '\\nAction:\\n```json\\n[\\n' }}{% for c in m.tool_calls %}{{ '    {\\n        "
     "\"tool_name\": \"' + c.function.name + '\",\\n        \"parameters\": ' }}{% if c.function.arguments %}{{ "
     "c.function.arguments | tojson(indent=4) | indent(8) }}{% else %}{{ '{}' }}{% endif %}{{ '\\n    }' }}{{ ',\\n' if not "
     "loop.last }}{% endfor %}{{ '\\n]```\\n' }}{% endif %}<|END_OF_TURN_TOKEN|>{% else "
     "%}<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>{% endif %}{% endfor %}{% if "
     "add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
     KIN_CHAT_PLAIN, "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
    {"DeepSeek V4",
     CHAT("\n\n<" BAR "DSML" BAR "tool_calls>\n" EACH("<" BAR "DSML" BAR "invoke name=\"" NAME "\">\n" PARAMETERS(
         "<" BAR "DSML" BAR "parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">" TEXT_OR_JSON
         "</" BAR "DSML" BAR "parameter>\n") "</" BAR "DSML" BAR "invoke>\n") "</" BAR "DSML" BAR "tool_calls>"),
     KIN_CHAT_PLAIN, CHATML},
    {"Hunyuan A13B", CHAT("<tool_calls>" LIST(OBJECT) "</tool_calls>"), KIN_CHAT_PLAIN, CHATML},
    {"Hunyuan 3",
     CHAT("<tool_calls:opensource>\n" EACH("<tool_call:opensource>" NAME "<tool_sep:opensource>\n" PARAMETERS(
         "<arg_key:opensource>{{ k }}</arg_key:opensource>\n<arg_value:opensource>" TEXT_OR_JSON
         "</arg_value:opensource>\n") "</tool_call:opensource>\n") "</tool_calls:opensource>"),
     KIN_CHAT_PLAIN, CHATML},
    {"Laguna",
     CHAT(EACH("<tool_call>" NAME
               "\n" PARAMETERS("<arg_key>{{ k }}</arg_key>\n<arg_value>" TEXT_OR_JSON "</arg_value>\n") "</tool_call>")),
     KIN_CHAT_GLM, CHATML},
    {"Step 3.5",
     CHAT(EACH("<tool_call>\n<function=" NAME
               ">\n" PARAMETERS("<parameter={{ k }}>\n" TEXT_OR_JSON "\n</parameter>\n") "</function>\n</tool_call>")),
     KIN_CHAT_XML, CHATML},
    {"LFM2.5",
     CHAT("<|tool_call_start|>" LIST(NAME "(" PARAMETERS(
         "{{ k }}={% if v is string %}'{{ v }}'{% elif v is mapping %}{{ v | tojson }}{% else %}{{ v | string "
         "}}{% endif %}{% if not loop.last %}, {% endif %}") ")") "<|tool_call_end|>"),
     KIN_CHAT_LFM, CHATML},
    {"Muse Glimmer",
     TOOLS "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.reasoning_content %}<|start|>assistant "
           "to=self<|message|>{{ m.reasoning_content }}<|eom|>{% endif %}{% if m.tool_calls %}" EACH(
               "<|start|>assistant to=" NAME "<|message|><atem:function_calls>\n<atem:invoke name=\"" NAME
               "\">\n" PARAMETERS("<atem:parameter name=\"{{ k }}\">" TEXT_OR_JSON
                                  "</atem:parameter>\n") "</atem:invoke>\n</atem:function_calls>{{ '<|eot|>' if loop.last else "
                                                         "'<|eom|>' }}") "{% else %}<|start|>assistant to=user<|message|>{{ "
                                                                         "m.content }}<|eot|>{% endif %}{% else %}<|start|>{{ "
                                                                         "m.role }}<|message|>{{ m.content }}<|eot|>{% endif "
                                                                         "%}{% endfor %}{% if add_generation_prompt "
                                                                         "%}<|start|>assistant{% endif %}",
     KIN_CHAT_MUSE, "<|start|>assistant", "<|eot|>"},
    {"Cohere2-MoE",
     TOOLS "{% for m in messages %}{% if m.role == 'assistant' %}<|CHATBOT_TOKEN|>{% if m.reasoning_content "
           "%}<|START_THINKING|>{{ m.reasoning_content }}<|END_THINKING|>{% endif %}{% if m.content %}<|START_TEXT|>{{ m.content "
           "}}<|END_TEXT|>{% endif %}{% if m.tool_calls %}<|START_ACTION|>[\n" EACH(
               "    {\"tool_call_id\": \"{{ loop.index0 }}\", \"tool_name\": \"" NAME "\", \"parameters\": " ARGUMENTS
               "}{{ ',\\n' if not loop.last else '\\n' }}") "]<|END_ACTION|>{% endif %}<|END_OF_TURN_TOKEN|>{% else "
                                                            "%}<|USER_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>{% endif %}{% "
                                                            "endfor %}{% if add_generation_prompt %}<|CHATBOT_TOKEN|>{% endif %}",
     KIN_CHAT_COMMAND, "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
    {"gpt-oss",
     TOOLS "{% for m in messages %}{% if m.tool_calls %}{% set c = m.tool_calls[0] %}<|start|>assistant to=functions." NAME
           "<|channel|>commentary json<|message|>" ARGUMENTS "<|call|>{% elif m.role == 'assistant' "
           "%}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ "
           "m.content }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
     KIN_CHAT_HARMONY, "<|start|>assistant", "<|call|>"},
};
enum { N_MODELS = sizeof models / sizeof *models };
