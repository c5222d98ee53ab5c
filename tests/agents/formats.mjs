// Seven formats of chats, as their models read and write them: a short template in the form of the model's, its control tokens (the first
// ends a reply), and what the model writes. `results` finds the results of tools in a prompt, as the template renders them.

const each = (object, one) => Object.entries(object).map(([key, value]) => one(key, typeof value === 'string' ? value : json(value))).join('');

// As the filter tojson writes it.
export function json(value) {
  if (Array.isArray(value)) return `[${value.map(json).join(', ')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.entries(value).map(([key, inner]) => `${JSON.stringify(key)}: ${json(inner)}`).join(', ')}}`;
}

function gemmaValue(value) {
  if (typeof value === 'string') return `<|"|>${value}<|"|>`;
  if (Array.isArray(value)) return `[${value.map(gemmaValue).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${key}:${gemmaValue(value[key])}`).join(',')}}`;
}

const list = (text, pattern) => [...text.matchAll(pattern)].map((match) => match[1]);

const text = `{%- macro text(c) -%}{%- if c is string -%}{{- c -}}{%- elif c -%}{%- for p in c -%}{{- p.text -}}{%- endfor -%}{%- endif -%}{%- endmacro -%}`;

const harmony = {
  name: 'gpt-oss',
  marks: ['<|return|>', '<|call|>', '<|start|>', '<|channel|>', '<|message|>', '<|constrain|>', '<|end|>'],
  template: `${text}
{{- '<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\\n\\nReasoning: ' ~ (reasoning_effort or 'medium') ~ '\\n\\n# Valid channels: analysis, commentary, final. Channel must be included for every message.' }}
{%- if tools %}{{- "\\nCalls to these tools must go to the commentary channel: 'functions'." }}{%- endif %}
{{- '<|end|>' }}
{%- set ns = namespace(rest=messages, name='', last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- if messages[0].role in ['system', 'developer'] %}{%- set ns.rest = messages[1:] %}{%- endif %}
{%- if tools or messages[0].role in ['system', 'developer'] %}
    {{- '<|start|>developer<|message|>' }}
    {%- if messages[0].role in ['system', 'developer'] %}{{- '# Instructions\\n\\n' + text(messages[0].content) + '\\n\\n' }}{%- endif %}
    {%- if tools %}
        {{- '# Tools\\n\\n## functions\\n\\nnamespace functions {\\n\\n' }}
        {%- for tool in tools %}{%- set tool = tool.function %}
            {{- '// ' + (tool.description or '') + '\\ntype ' + tool.name + ' = (_: ' + (tool.parameters | tojson) + ') => any;\\n\\n' }}
        {%- endfor %}
        {{- '} // namespace functions' }}
    {%- endif %}
    {{- '<|end|>' }}
{%- endif %}
{%- for m in ns.rest %}
    {%- if m.role == 'assistant' and m.tool_calls %}
        {%- set call = m.tool_calls[0].function %}{%- set ns.name = call.name %}
        {%- if m.content %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + text(m.content) + '<|end|>' }}
        {%- elif m.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif %}
        {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' + (call.arguments | tojson) + '<|call|>' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + text(m.content) + '<|end|>' }}
    {%- elif m.role == 'tool' %}
        {{- '<|start|>functions.' + ns.name + ' to=assistant<|channel|>commentary<|message|>' + (text(m.content) | tojson) + '<|end|>' }}
    {%- elif m.role == 'user' %}
        {{- '<|start|>user<|message|>' + text(m.content) + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('namespace functions {'),
  calls: (call, thought) => `<|channel|>analysis<|message|>${thought}<|end|><|start|>assistant<|channel|>commentary to=functions.${call.name} <|constrain|>json<|message|>${json(call.arguments)}<|call|>`,
  rendered: (call) => `<|start|>assistant to=functions.${call.name}<|channel|>commentary json<|message|>${json(call.arguments)}<|call|>`,
  answer: (words, thought) => `<|channel|>analysis<|message|>${thought}<|end|><|start|>assistant<|channel|>final<|message|>${words}<|return|>`,
  results: (prompt) => list(prompt, /<\|start\|>functions\.\S+ to=assistant<\|channel\|>commentary<\|message\|>(.*?)<\|end\|>/gs),
};

const deepseek = {
  name: 'DeepSeek V3.1',
  marks: ['<｜end▁of▁sentence｜>', '<｜begin▁of▁sentence｜>', '<｜User｜>', '<｜Assistant｜>', '<think>', '</think>', '<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>',
    '<｜tool▁call▁begin｜>', '<｜tool▁call▁end｜>', '<｜tool▁sep｜>', '<｜tool▁output▁begin｜>', '<｜tool▁output▁end｜>'],
  template: `${text}
{%- set ns = namespace(system='', after_tool=false, after_user=false) %}
{%- for m in messages %}{%- if m.role == 'system' %}{%- set ns.system = ns.system + ('\\n\\n' if ns.system else '') + text(m.content) %}{%- endif %}{%- endfor %}
{%- if tools %}
    {%- set ns.system = ns.system + '\\n\\n## Tools\\nYou have access to the following tools:\\n' %}
    {%- for tool in tools %}{%- set tool = tool.function %}
        {%- set ns.system = ns.system + '\\n### ' + tool.name + '\\nDescription: ' + (tool.description or '') + '\\n\\nParameters: ' + (tool.parameters | tojson) + '\\n' %}
    {%- endfor %}
    {%- set ns.system = ns.system + '\\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜><｜tool▁calls▁end｜>' %}
{%- endif %}
{{- bos_token + ns.system }}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- set ns.after_tool = false %}{%- set ns.after_user = true %}
        {{- '<｜User｜>' + text(m.content) }}
    {%- elif m.role == 'assistant' %}
        {%- if ns.after_user %}{{- '<｜Assistant｜></think>' }}{%- endif %}
        {%- set ns.after_user = false %}{%- set ns.after_tool = false %}
        {{- text(m.content) }}
        {%- if m.tool_calls %}
            {{- '<｜tool▁calls▁begin｜>' }}
            {%- for call in m.tool_calls %}{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments + '<｜tool▁call▁end｜>' }}{%- endfor %}
            {{- '<｜tool▁calls▁end｜>' }}
        {%- endif %}
        {{- '<｜end▁of▁sentence｜>' }}
    {%- elif m.role == 'tool' %}
        {%- set ns.after_user = false %}{%- set ns.after_tool = true %}
        {{- '<｜tool▁output▁begin｜>' + text(m.content) + '<｜tool▁output▁end｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and ns.after_user and not ns.after_tool %}{{- '<｜Assistant｜>' + ('<think>' if thinking else '</think>') }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('## Tools\nYou have access'),
  calls: (call, thought, prompt) => `${prompt.endsWith('<think>') ? `${thought}</think>` : ''}${call.says}<｜tool▁calls▁begin｜>${deepseek.rendered(call)}<｜tool▁calls▁end｜><｜end▁of▁sentence｜>`,
  rendered: (call) => `<｜tool▁call▁begin｜>${call.name}<｜tool▁sep｜>${JSON.stringify(call.arguments)}<｜tool▁call▁end｜>`,
  answer: (words, thought, prompt) => `${prompt.endsWith('<think>') ? `${thought}</think>` : ''}${words}<｜end▁of▁sentence｜>`,
  results: (prompt) => list(prompt, /<｜tool▁output▁begin｜>(.*?)<｜tool▁output▁end｜>/gs),
};

const glm = {
  name: 'GLM 4.5',
  marks: ['<|user|>', '<|observation|>', '<|assistant|>', '<|system|>', '[gMASK]', '<sop>', '<think>', '</think>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>',
    '<arg_key>', '</arg_key>', '<arg_value>', '</arg_value>'],
  template: `${text}
{{- '[gMASK]<sop>' }}
{%- if tools %}
    {{- '<|system|>\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- '</tools>\\n\\nFor each function call, output the function name and arguments within the following XML format:\\n<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>\\n<arg_value>{arg-value-1}</arg_value>\\n...\\n</tool_call>' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {{- '<|user|>\\n' + text(m.content) }}
    {%- elif m.role == 'assistant' %}
        {%- set thought = m.reasoning_content if m.reasoning_content is string and loop.index0 > ns.last else '' %}
        {{- '<|assistant|>\\n<think>' + thought.strip() + '</think>' }}
        {%- set words = text(m.content).strip() %}
        {%- if words %}{{- '\\n' + words }}{%- endif %}
        {%- for call in m.tool_calls or [] %}
            {{- '\\n<tool_call>' + call.function.name }}
            {%- for key, value in call.function.arguments.items() %}{{- '\\n<arg_key>' + key + '</arg_key>\\n<arg_value>' }}{{- value if value is string else value | tojson }}{{- '</arg_value>' }}{%- endfor %}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|observation|>' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + text(m.content) + '\\n</tool_response>' }}
    {%- elif m.role == 'system' %}
        {{- '<|system|>\\n' + text(m.content) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' + ('\\n<think></think>' if enable_thinking is defined and not enable_thinking else '') }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('provided with function signatures within <tools></tools>'),
  calls: (call, thought, prompt) => `${thoughtUnless(prompt, '</think>', `\n<think>${thought}</think>`)}\n${call.says}${glm.rendered(call)}<|user|>`,
  rendered: (call) => `\n<tool_call>${call.name}${each(call.arguments, (key, value) => `\n<arg_key>${key}</arg_key>\n<arg_value>${value}</arg_value>`)}\n</tool_call>`,
  answer: (words, thought, prompt) => `${thoughtUnless(prompt, '</think>', `\n<think>${thought}</think>`)}\n${words}<|user|>`,
  results: (prompt) => list(prompt, /\n<tool_response>\n(.*?)\n<\/tool_response>/gs),
};

// The thought, unless the prompt already ends with a closed one.
function thoughtUnless(prompt, end, thought) {
  return prompt.trimEnd().endsWith(end) ? '' : thought;
}

const kimi = {
  name: 'Kimi K2',
  marks: ['<|im_end|>', '<|im_user|>', '<|im_assistant|>', '<|im_system|>', '<|im_middle|>', '<|tool_calls_section_begin|>', '<|tool_calls_section_end|>', '<|tool_call_begin|>',
    '<|tool_call_argument_begin|>', '<|tool_call_end|>'],
  template: `${text}
{%- if tools %}{{- '<|im_system|>tool_declare<|im_middle|>' + (tools | tojson) + '<|im_end|>' }}{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<|im_user|>user<|im_middle|>' + text(m.content) + '<|im_end|>' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|im_assistant|>assistant<|im_middle|>' + text(m.content) }}
        {%- if m.tool_calls %}
            {{- '<|tool_calls_section_begin|>' }}
            {%- for call in m.tool_calls %}{{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' }}{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}{{- '<|tool_call_end|>' }}{%- endfor %}
            {{- '<|tool_calls_section_end|>' }}
        {%- endif %}
        {{- '<|im_end|>' }}
    {%- elif m.role == 'tool' %}{{- '<|im_system|>tool<|im_middle|>## Return of ' + m.tool_call_id + '\\n' + text(m.content) + '<|im_end|>' }}
    {%- else %}{{- '<|im_system|>system<|im_middle|>' + text(m.content) + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('<|im_system|>tool_declare<|im_middle|>'),
  calls: (call) => `${call.says}<|tool_calls_section_begin|>${kimi.rendered(call)}<|tool_calls_section_end|><|im_end|>`,
  rendered: (call) => `<|tool_call_begin|>functions.${call.name}:${call.index}<|tool_call_argument_begin|>${json(call.arguments)}<|tool_call_end|>`,
  answer: (words) => `${words}<|im_end|>`,
  results: (prompt) => list(prompt, /<\|im_system\|>tool<\|im_middle\|>## Return of functions\.[^:\n]+:\d+\n(.*?)<\|im_end\|>/gs),
};

const minimax = {
  name: 'MiniMax M2',
  marks: ['[e~[', ']~!b[', ']~b]', '<minimax:tool_call>', '</minimax:tool_call>', '<think>', '</think>'],
  template: `${text}
{%- set ns = namespace(rest=messages, last=-1) %}
{{- ']~!b[]~b]system\\n' }}
{%- if messages[0].role == 'system' %}{{- text(messages[0].content) }}{%- set ns.rest = messages[1:] %}{%- else %}{{- 'You are a helpful assistant.' }}{%- endif %}
{%- if tools %}
    {{- '\\n\\n# Tools\\nYou may call one or more tools to assist with the user query.\\nHere are the tools available in JSONSchema format:\\n\\n<tools>\\n' }}
    {%- for tool in tools %}{{- '<tool>' + (tool.function | tojson) + '</tool>\\n' }}{%- endfor %}
    {{- '</tools>\\n\\nWhen making tool calls, use XML format to invoke tools and pass parameters:\\n\\n<minimax:tool_call>\\n<invoke name="tool-name-1">\\n<parameter name="param-key-1">param-value-1</parameter>\\n...\\n</invoke>\\n</minimax:tool_call>' }}
{%- endif %}
{{- '[e~[\\n' }}
{%- for m in ns.rest %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in ns.rest %}
    {%- if m.role == 'assistant' %}
        {{- ']~b]ai\\n' }}
        {%- if m.reasoning_content and loop.index0 > ns.last %}{{- '<think>\\n' + m.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}
        {{- text(m.content) }}
        {%- if m.tool_calls %}
            {{- '\\n<minimax:tool_call>\\n' }}
            {%- for call in m.tool_calls %}
                {{- '<invoke name="' + call.function.name + '">\\n' }}
                {%- for key, value in call.function.arguments.items() %}{{- '<parameter name="' + key + '">' }}{{- value if value is string else value | tojson }}{{- '</parameter>\\n' }}{%- endfor %}
                {{- '</invoke>\\n' }}
            {%- endfor %}
            {{- '</minimax:tool_call>' }}
        {%- endif %}
        {{- '[e~[\\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or ns.rest[loop.index0 - 1].role != 'tool' %}{{- ']~b]tool' }}{%- endif %}
        {{- '\\n<response>' + text(m.content) + '</response>' }}
        {%- if loop.last or ns.rest[loop.index0 + 1].role != 'tool' %}{{- '[e~[\\n' }}{%- endif %}
    {%- elif m.role == 'user' %}
        {{- ']~b]user\\n' + text(m.content) + '[e~[\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]ai\\n<think>\\n' }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('Here are the tools available in JSONSchema format'),
  calls: (call, thought) => `${thought}\n</think>\n\n${call.says}\n<minimax:tool_call>\n${minimax.rendered(call)}</minimax:tool_call>[e~[`,
  rendered: (call) => `<invoke name="${call.name}">\n${each(call.arguments, (key, value) => `<parameter name="${key}">${value}</parameter>\n`)}</invoke>\n`,
  answer: (words, thought) => `${thought}\n</think>\n\n${words}[e~[`,
  results: (prompt) => list(prompt, /\n<response>(.*?)<\/response>/gs),
};

const gemma = {
  name: 'gemma 4',
  marks: ['<turn|>', '<|turn>', '<bos>', '<|channel>', '<channel|>', '<|tool_call>', '<tool_call|>', '<|tool>', '<tool|>', '<|tool_response>', '<tool_response|>', '<|"|>', '<|think|>'],
  template: `${text}
{%- macro value(v) -%}
    {%- if v is string -%}{{- '<|"|>' + v + '<|"|>' -}}
    {%- elif v is boolean -%}{{- 'true' if v else 'false' -}}
    {%- elif v is none -%}{{- 'null' -}}
    {%- elif v is mapping -%}{{- '{' -}}{%- for k, x in v | dictsort -%}{{- k + ':' -}}{{- value(x) -}}{{- '' if loop.last else ',' -}}{%- endfor -%}{{- '}' -}}
    {%- elif v is number -%}{{- v -}}
    {%- else -%}{{- '[' -}}{%- for x in v -%}{{- value(x) -}}{{- '' if loop.last else ',' -}}{%- endfor -%}{{- ']' -}}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(rest=messages, turn='', name='') %}
{{- '<bos>' }}
{%- if tools or messages[0].role in ['system', 'developer'] or enable_thinking %}
    {{- '<|turn>system\\n' + ('<|think|>' if enable_thinking else '') }}
    {%- if messages[0].role in ['system', 'developer'] %}{{- text(messages[0].content) | trim }}{%- set ns.rest = messages[1:] %}{%- endif %}
    {%- for tool in tools or [] %}{{- '<|tool>declaration:' + tool.function.name + value({'description': tool.function.description or '', 'parameters': tool.function.parameters}) + '<tool|>' }}{%- endfor %}
    {{- '<turn|>\\n' }}
{%- endif %}
{%- for m in ns.rest %}
    {%- if m.role == 'tool' %}
        {%- for before in messages %}{%- for call in before.tool_calls or [] %}{%- if call.id == m.tool_call_id %}{%- set ns.name = call.function.name %}{%- endif %}{%- endfor %}{%- endfor %}
        {{- '<|tool_response>response:' + ns.name + value({'value': text(m.content)}) + '<tool_response|>' }}
    {%- else %}
        {%- set role = 'model' if m.role == 'assistant' else m.role %}
        {%- if ns.turn != 'model' or role != 'model' %}
            {%- if ns.turn == 'model' %}{{- '<turn|>\\n' }}{%- endif %}
            {{- '<|turn>' + role + '\\n' }}
        {%- endif %}
        {{- text(m.content) | trim }}
        {%- for call in m.tool_calls or [] %}{{- '<|tool_call>call:' + call.function.name + value(call.function.arguments) + '<tool_call|>' }}{%- endfor %}
        {%- if not m.tool_calls %}{{- '<turn|>\\n' }}{%- endif %}
        {%- set ns.turn = 'model' if m.tool_calls else '' %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and ns.turn != 'model' %}{{- '<|turn>model\\n' }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('<|tool>declaration:'),
  calls: (call) => `${call.says}${gemma.rendered(call)}<|tool_response>`,
  rendered: (call) => `<|tool_call>call:${call.name}${gemmaValue(call.arguments)}<tool_call|>`,
  answer: (words, thought, prompt) => `${prompt.includes('<|think|>') ? `<|channel>thought\n${thought}<channel|>` : ''}${words}<turn|>`,
  results: (prompt) => list(prompt, /<\|tool_response>response:[^{]+\{value:<\|"\|>(.*?)<\|"\|>\}<tool_response\|>/gs),
};

const qwen = {
  name: 'Qwen 3.5',
  marks: ['<|im_end|>', '<|im_start|>', '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>', '<think>', '</think>'],
  template: `${text}
{%- set ns = namespace(rest=messages, last=-1) %}
{%- if messages[0].role == 'system' %}{%- set ns.rest = messages[1:] %}{%- endif %}
{%- if tools or messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' }}
    {%- if tools %}
        {{- '# Tools\\n\\nYou have access to the following functions:\\n\\n<tools>' }}
        {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
        {{- '\\n</tools>\\n\\nIf you choose to call a function ONLY reply in the following format with NO suffix:\\n\\n<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>\\nvalue_1\\n</parameter>\\n</function>\\n</tool_call>' }}
    {%- endif %}
    {%- if messages[0].role == 'system' %}{{- ('\\n\\n' if tools else '') + text(messages[0].content) }}{%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for m in ns.rest %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in ns.rest %}
    {%- if m.role == 'assistant' %}
        {%- set words = text(m.content) | trim %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last %}{{- '<think>\\n' + ((m.reasoning_content or '') | trim) + '\\n</think>\\n\\n' }}{%- endif %}
        {{- words }}
        {%- for call in m.tool_calls or [] %}
            {{- ('\\n\\n' if loop.first and words else '' if loop.first else '\\n') + '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for key, value in call.function.arguments | items %}{{- '<parameter=' + key + '>\\n' }}{{- value if value is string else value | tojson }}{{- '\\n</parameter>\\n' }}{%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or ns.rest[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + text(m.content) + '\\n</tool_response>' }}
        {%- if loop.last or ns.rest[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif m.role == 'user' %}
        {{- '<|im_start|>user\\n' + text(m.content) + '<|im_end|>\\n' }}
    {%- else %}
        {{- raise_exception('System message must be at the beginning.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and not enable_thinking else '<think>\\n') }}{%- endif %}`,
  hasTools: (prompt) => prompt.includes('You have access to the following functions:'),
  calls: (call, thought, prompt) => `${thoughtUnless(prompt, '</think>', `${thought}\n</think>\n\n`)}${call.says}\n\n${qwen.rendered(call)}<|im_end|>`,
  rendered: (call) => `<tool_call>\n<function=${call.name}>\n${each(call.arguments, (key, value) => `<parameter=${key}>\n${value}\n</parameter>\n`)}</function>\n</tool_call>`,
  answer: (words, thought, prompt) => `${thoughtUnless(prompt, '</think>', `${thought}\n</think>\n\n`)}${words}<|im_end|>`,
  results: (prompt) => list(prompt, /\n<tool_response>\n(.*?)\n<\/tool_response>/gs),
};

export const formats = [harmony, deepseek, glm, kimi, minimax, gemma, qwen];
