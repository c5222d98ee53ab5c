#include "pure/chat/named_templates.h"

#include <stddef.h>
#include <string.h>

#define EACH "{% for m in messages %}"
#define END "{% endfor %}"
#define TO_WRITE "{% if add_generation_prompt %}"

static const struct {
    const char *name, *source;
} templates[] = {
    {"chatml", EACH "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n" END TO_WRITE "<|im_start|>assistant\n{% endif %}"},
    {"llama2",
     "{% set ns = namespace(inside=true) %}[INST] " EACH "{% if not ns.inside %}{% set ns.inside = true %}[INST] {% endif %}"
     "{% if m.role == 'system' %}{{ m.content + '\n' }}"
     "{% elif m.role == 'user' %}{{ m.content + ' [/INST]' }}"
     "{% else %}{{ m.content + '</s>' }}{% set ns.inside = false %}{% endif %}" END},
    {"llama2-sys",
     "{% set ns = namespace(inside=true) %}[INST] " EACH "{% if not ns.inside %}{% set ns.inside = true %}[INST] {% endif %}"
     "{% if m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}"
     "{% elif m.role == 'user' %}{{ m.content + ' [/INST]' }}"
     "{% else %}{{ m.content + '</s>' }}{% set ns.inside = false %}{% endif %}" END},
    {"llama3", EACH "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>" END TO_WRITE
                    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"llama4", EACH "<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content | trim }}<|eot|>" END TO_WRITE
                    "<|header_start|>assistant<|header_end|>\n\n{% endif %}"},
    {"mistral-v1", "{% set ns = namespace(inside=false) %}" EACH
                   "{% if m.role != 'assistant' and not ns.inside %}{{ ' [INST] ' }}{% set ns.inside = true %}{% endif %}"
                   "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
                   "{% elif m.role == 'user' %}{{ m.content + ' [/INST]' }}"
                   "{% else %}{{ ' ' + m.content + '</s>' }}{% set ns.inside = false %}{% endif %}" END},
    {"mistral-v3", "{% set ns = namespace(inside=false) %}" EACH
                   "{% if m.role != 'assistant' and not ns.inside %}{{ '[INST] ' }}{% set ns.inside = true %}{% endif %}"
                   "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
                   "{% elif m.role == 'user' %}{{ m.content + '[/INST]' }}"
                   "{% else %}{{ ' ' + m.content | trim + '</s>' }}{% set ns.inside = false %}{% endif %}" END},
    {"mistral-v3-tekken", "{% set ns = namespace(inside=false) %}" EACH
                          "{% if m.role != 'assistant' and not ns.inside %}{{ '[INST]' }}{% set ns.inside = true %}{% endif %}"
                          "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
                          "{% elif m.role == 'user' %}{{ m.content + '[/INST]' }}"
                          "{% else %}{{ m.content | trim + '</s>' }}{% set ns.inside = false %}{% endif %}" END},
    {"mistral-v7", EACH "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}"
                        "{% elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
                        "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}" END},
    {"mistral-v7-tekken", EACH "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
                               "{% elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
                               "{% else %}{{ m.content + '</s>' }}{% endif %}" END},
    {"phi3", EACH "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n" END TO_WRITE "<|assistant|>\n{% endif %}"},
    {"phi4", EACH "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>" END TO_WRITE
                  "<|im_start|>assistant<|im_sep|>{% endif %}"},
    {"zephyr", EACH "<|{{ m.role }}|>\n{{ m.content }}<|endoftext|>\n" END TO_WRITE "<|assistant|>\n{% endif %}"},
    {"monarch",
     EACH "{{ '' if loop.first else '<s>' }}{{ m.role }}\n{{ m.content }}</s>\n" END TO_WRITE "<s>assistant\n{% endif %}"},
    {"gemma",
     "{% set ns = namespace(system='') %}" EACH "{% if m.role == 'system' %}{% set ns.system = m.content | trim %}{% else %}"
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
     "{{ ns.system + '\n\n' if ns.system and m.role != 'assistant' else '' }}{{ m.content | trim }}<end_of_turn>\n"
     "{% if m.role != 'assistant' %}{% set ns.system = '' %}{% endif %}{% endif %}" END TO_WRITE
     "<start_of_turn>model\n{% endif %}"},
    {"vicuna", EACH "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
                    "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}"
                    "{% else %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}" END TO_WRITE "ASSISTANT:{% endif %}"},
    {"vicuna-orca", EACH "{% if m.role == 'system' %}{{ 'SYSTEM: ' + m.content + '\n' }}"
                         "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}"
                         "{% else %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}" END TO_WRITE "ASSISTANT:{% endif %}"},
    {"deepseek",
     EACH "{% if m.role == 'system' %}{{ m.content }}"
          "{% elif m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n' }}"
          "{% else %}{{ '### Response:\n' + m.content + '\n<|EOT|>\n' }}{% endif %}" END TO_WRITE "### Response:\n{% endif %}"},
    {"deepseek2",
     EACH "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
          "{% elif m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}"
          "{% else %}{{ 'Assistant: ' + m.content + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}{% endif %}" END TO_WRITE
          "Assistant:{% endif %}"},
    {"deepseek3", EACH "{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
                       "{% elif m.role == 'user' %}{{ '<\uff5cUser\uff5c>' + m.content }}"
                       "{% else %}{{ '<\uff5cAssistant\uff5c>' + m.content + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}"
                       "{% endif %}" END TO_WRITE "<\uff5cAssistant\uff5c>{% endif %}"},
    {"command-r",
     EACH "<|START_OF_TURN_TOKEN|>{% if m.role == 'system' %}<|SYSTEM_TOKEN|>{% elif m.role == 'user' %}"
          "<|USER_TOKEN|>{% else %}<|CHATBOT_TOKEN|>{% endif %}{{ m.content | trim }}<|END_OF_TURN_TOKEN|>" END TO_WRITE
          "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"},
    {"chatglm3", "[gMASK]sop" EACH "<|{{ m.role }}|>\n {{ m.content }}" END TO_WRITE "<|assistant|>{% endif %}"},
    {"chatglm4", "[gMASK]<sop>" EACH "<|{{ m.role }}|>\n{{ m.content }}" END TO_WRITE "<|assistant|>\n{% endif %}"},
    {"openchat", EACH "{% if m.role == 'system' %}{{ m.content + '<|end_of_turn|>' }}{% else %}"
                      "GPT4 Correct {{ 'User' if m.role == 'user' else 'Assistant' }}: {{ m.content }}<|end_of_turn|>"
                      "{% endif %}" END TO_WRITE "GPT4 Correct Assistant:{% endif %}"},
    {"falcon3", EACH "<|{{ m.role }}|>\n{{ m.content }}\n" END TO_WRITE "<|assistant|>\n{% endif %}"},
    {"granite", EACH "<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n" END TO_WRITE
                     "<|start_of_role|>assistant<|end_of_role|>{% endif %}"},
    {"exaone3", EACH "{% if m.role == 'system' %}{{ '[|system|]' + m.content | trim + '[|endofturn|]\n' }}"
                     "{% elif m.role == 'user' %}{{ '[|user|]' + m.content | trim + '\n' }}"
                     "{% else %}{{ '[|assistant|]' + m.content | trim + '[|endofturn|]\n' }}{% endif %}" END TO_WRITE
                     "[|assistant|]{% endif %}"},
};

const char *kin_named_template_at(int i) {
    return i >= 0 && i < (int)(sizeof templates / sizeof templates[0]) ? templates[i].name : NULL;
}

const char *kin_named_template(const char *name) {
    for (int i = 0; kin_named_template_at(i); i++)
        if (strcmp(templates[i].name, name) == 0) return templates[i].source;
    return NULL;
}
