// openai 6.x: the Responses API.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { all, ask, clock, errorOf, expectWeather, weather } from './harness.mjs';

const tools = [weather, clock].map((f) => ({ type: 'function', strict: true, ...f }));

export default async function (check, { v1, key, model }) {
  const client = new OpenAI({ baseURL: v1, apiKey: key, maxRetries: 0 });
  const respond = (more) => client.responses.create({ model, input: 'Tell me a story.', max_output_tokens: 12, ...more });

  await check('responses: a response has all its fields', async () => {
    const r = await respond({ instructions: 'Be brief.', metadata: { who: 'me' } });
    assert.match(r.id, /^resp_/);
    assert.equal(r.object, 'response');
    assert.equal(typeof r.output_text, 'string');
    assert.equal(r.instructions, 'Be brief.');
    assert.deepEqual(r.metadata, { who: 'me' });
    assert.equal(r.error, null);
    assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens);
  });
  await check('responses: what is cut at the limit is incomplete', async () => {
    const r = await respond({ max_output_tokens: 2, input: ask });
    if (r.usage.output_tokens < 2) return; // it ended on its own
    assert.equal(r.status, 'incomplete');
    assert.equal(r.incomplete_details.reason, 'max_output_tokens');
  });
  await check('responses: events are numbered and the stream helper takes them', async () => {
    const stream = client.responses.stream({ model, input: ask, max_output_tokens: 12 });
    const events = await all(stream);
    assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
    assert.equal(events[0].type, 'response.created');
    assert.deepEqual(events[0].response.output, []);
    assert.ok(['response.completed', 'response.incomplete'].includes(events.at(-1).type));
    const final = await stream.finalResponse();
    const said = events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join('');
    assert.equal(final.output_text, said);
    assert.deepEqual(final.output, events.at(-1).response.output.map((item, i) => ({ ...item, ...final.output[i] })));
  });
  await check('responses: each item is done before the next is added', async () => {
    let open = 0;
    for await (const event of await respond({ stream: true })) {
      if (event.type === 'response.output_item.added') assert.equal(++open, 1);
      if (event.type === 'response.output_item.done') assert.equal(--open, 0);
    }
    assert.equal(open, 0);
  });
  await check('responses: the same seed gives the same text, and so does a stream', async () => {
    const whole = await respond({ seed: 5, temperature: 0.8 });
    const final = await client.responses.stream({ model, input: 'Tell me a story.', max_output_tokens: 12, seed: 5, temperature: 0.8 }).finalResponse();
    assert.equal(final.output_text, whole.output_text);
  });
  await check('responses: the tool that is named is called, with the arguments of its schema', async () => {
    const r = await respond({ tools, tool_choice: { type: 'function', name: 'get_weather' }, max_output_tokens: 200 });
    const call = r.output.find((item) => item.type === 'function_call');
    assert.equal(call.name, 'get_weather');
    assert.equal(call.status, 'completed');
    expectWeather(JSON.parse(call.arguments));
  });
  await check('responses: arguments are streamed and then done', async () => {
    const stream = client.responses.stream({ model, input: ask, tools, tool_choice: 'required', max_output_tokens: 300 });
    const events = await all(stream);
    const done = events.filter((e) => e.type === 'response.function_call_arguments.done');
    assert.ok(done.length > 0);
    for (const { item_id, arguments: args } of done) {
      const pieces = events.filter((e) => e.type === 'response.function_call_arguments.delta' && e.item_id === item_id);
      assert.equal(pieces.map((e) => e.delta).join(''), args);
    }
    const final = await stream.finalResponse();
    for (const item of final.output) if (item.type === 'function_call') assert.equal(typeof item.parsed_arguments, 'object');
  });
  await check('responses: the output of a call is answered', async () => {
    const first = await respond({ input: ask, tools, tool_choice: { type: 'function', name: 'get_weather' }, max_output_tokens: 200 });
    const { call_id } = first.output.find((item) => item.type === 'function_call');
    const next = await respond({ input: [...ask, ...first.output, { type: 'function_call_output', call_id, output: 'sunny' }] });
    assert.equal(typeof next.output_text, 'string');
  });
  await check('responses: tools of other kinds are tolerated', async () => {
    const r = await respond({ tools: [{ type: 'web_search' }, { type: 'custom', name: 'patch' }, ...tools], tool_choice: 'auto' });
    assert.ok(['completed', 'incomplete'].includes(r.status));
  });
  await check('responses: parse gives an object of the schema', async () => {
    const Story = z.object({ size: z.enum(['small', 'large']), true_story: z.boolean() });
    const r = await client.responses.parse({ model, input: ask, max_output_tokens: 200, text: { format: zodTextFormat(Story, 'story') } });
    Story.parse(r.output_parsed);
  });
  await check('responses: what is stored elsewhere is refused', async () => {
    const err = await errorOf(() => respond({ previous_response_id: 'resp_1' }));
    assert.ok(err instanceof OpenAI.BadRequestError);
    assert.equal(err.param, 'previous_response_id');
  });
  await check('responses: input is required', async () => {
    assert.equal((await errorOf(() => respond({ input: undefined }))).status, 400);
  });
}
