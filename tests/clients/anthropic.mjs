// @anthropic-ai/sdk: messages, streams, tools, counting, errors.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { all, ask, clock, errorOf, expectCall, expectWeather, middleOf, weather, wholeNumber } from './harness.mjs';

const tools = [weather, clock].map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters }));

export default async function (check, { root, key, model }) {
  const client = new Anthropic({ baseURL: root, apiKey: key, maxRetries: 0 });
  const body = { model, messages: ask, max_tokens: 12, temperature: 0.8, seed: 7 };
  const create = (more) => client.messages.create({ ...body, ...more });
  const textOf = (message) => message.content.filter((block) => block.type === 'text').map((block) => block.text).join('');

  await check('anthropic: the root answers HEAD', async () => {
    assert.equal((await fetch(root, { method: 'HEAD' })).status, 200);
  });
  await check('anthropic: a message has all its fields', async () => {
    const m = await create();
    assert.match(m.id, /^msg_/);
    assert.equal(m.type, 'message');
    assert.equal(m.role, 'assistant');
    assert.equal(typeof textOf(m), 'string');
    wholeNumber(m.usage.input_tokens);
    wholeNumber(m.usage.cache_read_input_tokens);
    assert.ok(m.usage.output_tokens > 0 && m.usage.output_tokens <= 12);
    assert.equal(m.timings, undefined);
  });
  await check('anthropic: at the limit the reason is max_tokens', async () => {
    const m = await create({ max_tokens: 2 });
    assert.equal(m.stop_reason, m.usage.output_tokens < 2 ? 'end_turn' : 'max_tokens');
    assert.equal(m.stop_sequence, null);
  });
  await check('anthropic: a stop sequence is named', async () => {
    const text = textOf(await create({ max_tokens: 24 }));
    const stop = middleOf(text);
    const m = await create({ max_tokens: 24, stop_sequences: [stop] });
    assert.equal(m.stop_reason, 'stop_sequence');
    assert.equal(m.stop_sequence, stop);
    assert.equal(textOf(m), text.slice(0, text.indexOf(stop)));
  });
  await check('anthropic: system may be text or blocks', async () => {
    const system = [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }];
    const [a, b] = [await create({ system: 'Be brief.' }), await create({ system })];
    assert.equal(textOf(a), textOf(b));
  });
  await check('anthropic: events come in their order, and blocks do not overlap', async () => {
    const events = await all(await create({ stream: true }));
    assert.equal(events[0].type, 'message_start');
    assert.deepEqual(events[0].message.content, []);
    assert.deepEqual(events.slice(-2).map((e) => e.type), ['message_delta', 'message_stop']);
    let open = null;
    for (const e of events) {
      if (e.type === 'content_block_start') assert.equal(open, null), (open = e.index);
      if (e.type === 'content_block_delta') assert.equal(e.index, open);
      if (e.type === 'content_block_stop') assert.equal(e.index, open), (open = null);
    }
    assert.equal(open, null);
  });
  await check('anthropic: the stream helper puts the message together', async () => {
    let said = '';
    const m = await client.messages.stream(body).on('text', (text) => (said += text)).finalMessage();
    assert.equal(textOf(m), said);
    assert.equal(said, textOf(await create()));
    assert.ok(m.usage.input_tokens + m.usage.cache_read_input_tokens > 0);
  });
  await check('anthropic: any tool is called', async () => {
    const m = await create({ tools, tool_choice: { type: 'any' }, max_tokens: 200 });
    const calls = m.content.filter((block) => block.type === 'tool_use');
    assert.ok(calls.length > 0);
    if (m.stop_reason === 'max_tokens') calls.pop(); // a model without tool training may call until the limit
    else assert.equal(m.stop_reason, 'tool_use');
    for (const call of calls) expectCall(call.name, call.input);
  });
  await check('anthropic: the tool that is named is called, also in a stream', async () => {
    const choice = { tools, tool_choice: { type: 'tool', name: 'get_weather', disable_parallel_tool_use: true }, max_tokens: 200 };
    const snapshots = [];
    const m = await client.messages.stream({ ...body, ...choice }).on('inputJson', (_, input) => snapshots.push(input)).finalMessage();
    const calls = m.content.filter((block) => block.type === 'tool_use');
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, 'get_weather');
    expectWeather(calls[0].input);
    assert.deepEqual(snapshots.at(-1), calls[0].input);
  });
  await check('anthropic: a result is answered', async () => {
    const first = await create({ tools, tool_choice: { type: 'tool', name: 'get_weather' }, max_tokens: 200 });
    const results = first.content
      .filter((block) => block.type === 'tool_use')
      .map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: [{ type: 'text', text: 'sunny' }] }));
    const messages = [...ask, { role: 'assistant', content: first.content }, { role: 'user', content: results }];
    const next = await create({ messages, tools, tool_choice: { type: 'none' } });
    assert.ok(!next.content.some((block) => block.type === 'tool_use'));
  });
  await check('anthropic: a schema for the answer holds', async () => {
    const m = await create({ output_config: { format: { type: 'json_schema', schema: weather.parameters } }, max_tokens: 200 });
    expectWeather(JSON.parse(textOf(m)));
  });
  await check('anthropic: tokens are counted as they are used', async () => {
    const { input_tokens } = await client.messages.countTokens({ model, messages: ask });
    const { usage } = await create({ max_tokens: 1 });
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
  });
  await check('anthropic: the beta paths are the same', async () => {
    assert.equal((await client.beta.messages.create({ ...body, betas: ['context-1m-2025-08-07'] })).type, 'message');
  });
  await check('anthropic: what is missing is an invalid request', async () => {
    const err = await errorOf(() => create({ messages: undefined }));
    assert.ok(err instanceof Anthropic.BadRequestError);
    assert.equal(err.error.type, 'error');
    assert.equal(err.type, 'invalid_request_error');
  });
  await check('anthropic: an image is refused, and says so', async () => {
    const content = [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }];
    const err = await errorOf(() => create({ messages: [{ role: 'user', content }] }));
    assert.equal(err.status, 501);
    assert.match(err.message, /text only/);
  });
  await check('anthropic: a stream is aborted', async () => {
    const stream = client.messages.stream({ ...body, max_tokens: 400 });
    stream.once('text', () => stream.abort());
    assert.ok((await errorOf(() => stream.finalMessage())) instanceof Anthropic.APIUserAbortError);
  });
}
