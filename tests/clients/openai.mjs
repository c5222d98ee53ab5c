// openai 6.x: models, chat completions, completions, embeddings, errors, aborts, retries.
import assert from 'node:assert/strict';
import http from 'node:http';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { all, ask, clock, errorOf, expectCall, expectWeather, middleOf, weather, wholeNumber } from './harness.mjs';

const tools = [weather, clock].map((f) => ({ type: 'function', function: f }));
const named = (name) => ({ type: 'function', function: { name } });

// A proxy that answers the first nBusy requests with "busy" and forwards the others.
async function withBusyProxy(root, nBusy, action) {
  let n = 0;
  const proxy = http.createServer((request, response) => {
    if (n++ < nBusy) {
      response.writeHead(n % 2 ? 503 : 429, { 'retry-after-ms': '5', 'content-type': 'application/json' });
      return response.end('{"error":{"message":"busy"}}');
    }
    const url = new URL(request.url, root);
    const passed = http.request(url, { method: request.method, headers: { ...request.headers, host: url.host } }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(passed);
  });
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  try {
    return await action(`http://127.0.0.1:${proxy.address().port}/v1`, () => n);
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
}

export default async function (check, { root, v1, key, model, nContext }) {
  const client = new OpenAI({ baseURL: v1, apiKey: key, maxRetries: 0 });
  const chat = (more) => client.chat.completions.create({ model, messages: ask, max_tokens: 12, seed: 7, temperature: 0.8, ...more });
  const fetchRaw = (path, init) => fetch(root + path, { ...init, headers: { authorization: `Bearer ${key}`, ...init?.headers } });

  await check('openai: models are listed', async () => {
    const { data } = await client.models.list();
    assert.ok(data.length > 0);
    for (const m of data) assert.equal(m.object, 'model');
  });
  await check('openai: a model is retrieved by its id', async () => {
    assert.equal((await client.models.retrieve(model)).id, model);
  });
  await check('openai: an unknown model is not found', async () => {
    assert.ok((await errorOf(() => client.models.retrieve('no-such-model'))) instanceof OpenAI.NotFoundError);
  });

  // ---- chat completions
  await check('openai: a completion has all its fields', async () => {
    const c = await chat();
    assert.equal(c.object, 'chat.completion');
    assert.match(c.id, /^chatcmpl-/);
    wholeNumber(c.created);
    assert.equal(typeof c.system_fingerprint, 'string');
    assert.equal(c.choices.length, 1);
    assert.equal(c.choices[0].index, 0);
    assert.equal(c.choices[0].message.role, 'assistant');
    assert.equal(typeof c.choices[0].message.content, 'string');
    assert.ok(['stop', 'length'].includes(c.choices[0].finish_reason));
  });
  await check('openai: usage adds up', async () => {
    const { usage } = await chat();
    assert.ok(usage.prompt_tokens > 0);
    assert.ok(usage.completion_tokens > 0 && usage.completion_tokens <= 12);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    wholeNumber(usage.prompt_tokens_details.cached_tokens);
  });
  await check('openai: max_completion_tokens limits too', async () => {
    const c = await chat({ max_tokens: undefined, max_completion_tokens: 3 });
    assert.ok(c.usage.completion_tokens <= 3);
  });
  await check('openai: the same seed gives the same text, and so does a stream', async () => {
    const [a, b] = [await chat(), await chat()];
    const chunks = await all(await chat({ stream: true }));
    assert.equal(a.choices[0].message.content, b.choices[0].message.content);
    assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), a.choices[0].message.content);
  });
  await check('openai: many at once give what each gives alone', async () => {
    const seeds = [1, 2, 3, 4, 5, 6, 7, 8];
    const together = await Promise.all(seeds.map((seed) => chat({ seed })));
    const alone = await chat({ seed: 5 });
    assert.equal(together[4].choices[0].message.content, alone.choices[0].message.content);
  });
  await check('openai: n choices have their indexes', async () => {
    const c = await chat({ n: 3 });
    assert.deepEqual(c.choices.map((choice) => choice.index), [0, 1, 2]);
  });
  await check('openai: a stop sequence ends the text before it', async () => {
    const text = (await chat({ max_tokens: 24 })).choices[0].message.content;
    const stop = middleOf(text);
    const [choice] = (await chat({ max_tokens: 24, stop: [stop] })).choices;
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(choice.message.content, text.slice(0, text.indexOf(stop)));
  });
  await check('openai: logprobs are those of the text', async () => {
    const [choice] = (await chat({ logprobs: true, top_logprobs: 2 })).choices;
    const { content } = choice.logprobs;
    assert.ok(content.length > 0);
    assert.equal(Buffer.concat(content.map((t) => Buffer.from(t.bytes))).toString().trim(), choice.message.content.trim());
    for (const t of content) {
      assert.ok(t.logprob <= 0);
      assert.equal(t.top_logprobs.length, 2);
    }
  });
  await check('openai: a bias can forbid a token', async () => {
    const first = async (more) => (await chat({ logprobs: true, max_tokens: 1, temperature: 0, ...more })).choices[0].logprobs.content[0];
    const { id } = await first();
    assert.notEqual((await first({ logit_bias: { [id]: -100 } })).id, id);
  });
  await check('openai: text parts and developer messages are taken', async () => {
    const messages = [
      { role: 'developer', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'Tell me' }, { type: 'text', text: 'a story.' }] },
    ];
    assert.equal(typeof (await chat({ messages })).choices[0].message.content, 'string');
  });
  await check('openai: an image is refused as not supported', async () => {
    const messages = [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }] }];
    assert.equal((await errorOf(() => chat({ messages }))).status, 501);
  });

  // ---- streams
  await check('openai: chunks begin with the role and end with the reason', async () => {
    const chunks = await all(await chat({ stream: true }));
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
    assert.equal(chunks.filter((c) => c.choices[0]?.finish_reason).length, 1);
    for (const c of chunks) assert.equal(c.object, 'chat.completion.chunk');
    for (const c of chunks) assert.equal(c.choices.length, 1, 'no chunk without choices unless usage was asked for');
    for (const c of chunks.slice(1)) assert.notEqual(c.choices[0].delta.content, '', 'no empty deltas');
  });
  await check('openai: usage comes in a last chunk without choices', async () => {
    const chunks = await all(await chat({ stream: true, stream_options: { include_usage: true } }));
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens);
  });
  await check('openai: the choices of a stream are told apart', async () => {
    const chunks = await all(await chat({ stream: true, n: 2 }));
    const ends = chunks.filter((c) => c.choices[0]?.finish_reason).map((c) => c.choices[0].index);
    assert.deepEqual(ends.sort(), [0, 1]);
  });
  await check('openai: the stream helper puts the completion together', async () => {
    let said = '';
    const stream = client.chat.completions.stream({ model, messages: ask, max_tokens: 12, seed: 7 });
    stream.on('content', (delta) => (said += delta));
    const c = await stream.finalChatCompletion();
    assert.equal(c.choices[0].message.content, said);
    assert.equal(c.choices[0].message.role, 'assistant');
  });
  await check('openai: the stream helper sums usage', async () => {
    const stream = client.chat.completions.stream({ model, messages: ask, max_tokens: 4, stream_options: { include_usage: true } });
    const { prompt_tokens, completion_tokens, total_tokens } = await stream.totalUsage();
    assert.ok(prompt_tokens > 0);
    assert.equal(total_tokens, prompt_tokens + completion_tokens);
  });

  // ---- tools
  await check('openai: a call that is required is made', async () => {
    const [choice] = (await chat({ tools, tool_choice: 'required', max_tokens: 200 })).choices;
    const calls = choice.message.tool_calls;
    assert.ok(calls.length > 0);
    if (choice.finish_reason === 'length') calls.pop(); // a model without tool training may call until the limit
    else assert.equal(choice.finish_reason, 'tool_calls');
    for (const call of calls) {
      assert.equal(call.type, 'function');
      assert.ok(call.id.length > 0);
      expectCall(call.function.name, JSON.parse(call.function.arguments));
    }
  });
  await check('openai: one call only, without parallel calls', async () => {
    const [choice] = (await chat({ tools, tool_choice: 'required', parallel_tool_calls: false, max_tokens: 200 })).choices;
    assert.equal(choice.message.tool_calls.length, 1);
  });
  for (const name of ['get_weather', 'get_time']) {
    await check(`openai: the tool that is named is called once: ${name}`, async () => {
      const [choice] = (await chat({ tools, tool_choice: named(name), max_tokens: 200 })).choices;
      assert.equal(choice.message.tool_calls.length, 1);
      assert.equal(choice.message.tool_calls[0].function.name, name);
      expectCall(name, JSON.parse(choice.message.tool_calls[0].function.arguments));
    });
  }
  await check('openai: no call with tool_choice none', async () => {
    const [choice] = (await chat({ tools, tool_choice: 'none' })).choices;
    assert.ok(!choice.message.tool_calls?.length);
  });
  await check('openai: calls are streamed in pieces that make JSON', async () => {
    const stream = client.chat.completions.stream({ model, messages: ask, tools, tool_choice: named('get_weather'), max_tokens: 200 });
    let pieces = '';
    stream.on('tool_calls.function.arguments.delta', (event) => (pieces += event.arguments_delta));
    const [call] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
    expectWeather(JSON.parse(call.function.arguments));
    assert.equal(pieces, call.function.arguments);
  });
  await check('openai: a tool that nobody has is refused by name', async () => {
    const err = await errorOf(() => chat({ tools, tool_choice: named('nothing') }));
    assert.ok(err instanceof OpenAI.BadRequestError);
  });
  await check('openai: a result is answered', async () => {
    const [{ message }] = (await chat({ tools, tool_choice: named('get_weather'), max_tokens: 200 })).choices;
    const result = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny' };
    const next = await chat({ messages: [...ask, message, result], tools, tool_choice: 'none' });
    assert.equal(typeof next.choices[0].message.content, 'string');
  });
  for (const stream of [false, true]) {
    await check(`openai: the tools runner calls the function${stream ? ' of a stream' : ''}`, async () => {
      const seen = [];
      const runner = client.chat.completions.runTools({
        model,
        stream,
        messages: ask,
        max_tokens: 200,
        tool_choice: named('get_weather'),
        tools: [{ type: 'function', function: { ...weather, parse: JSON.parse, function: (args) => (seen.push(args), 'sunny') } }],
      });
      await runner.done();
      assert.ok(seen.length > 0);
      expectWeather(seen[0]);
    });
  }

  // ---- formats
  const Story = z.object({ size: z.enum(['small', 'large']), true_story: z.boolean() });
  await check('openai: parse gives an object of the schema', async () => {
    const c = await client.chat.completions.parse({ model, messages: ask, max_tokens: 200, response_format: zodResponseFormat(Story, 'story') });
    Story.parse(c.choices[0].message.parsed);
  });
  await check('openai: parse gives the arguments of a strict tool', async () => {
    const c = await client.chat.completions.parse({
      model,
      messages: ask,
      max_tokens: 200,
      tools: [zodFunction({ name: 'tell', parameters: Story })],
      tool_choice: named('tell'),
    });
    Story.parse(c.choices[0].message.tool_calls[0].function.parsed_arguments);
  });
  await check('openai: a JSON object begins as one', async () => {
    const [choice] = (await chat({ response_format: { type: 'json_object' }, max_tokens: 64 })).choices;
    assert.match(choice.message.content.trimStart(), /^\{/);
    if (choice.finish_reason === 'stop') JSON.parse(choice.message.content);
  });
  await check('openai: a schema that is none is refused', async () => {
    const format = { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'nonsense' } } };
    assert.ok((await errorOf(() => chat({ response_format: format }))) instanceof OpenAI.BadRequestError);
  });

  // ---- errors, aborts, retries
  await check('openai: a field of the wrong type is named', async () => {
    const err = await errorOf(() => chat({ temperature: 'hot' }));
    assert.ok(err instanceof OpenAI.BadRequestError);
    assert.equal(err.type, 'invalid_request_error');
    assert.match(err.message, /temperature/);
  });
  await check('openai: messages are required', async () => {
    assert.equal((await errorOf(() => chat({ messages: undefined }))).status, 400);
  });
  await check('openai: a body that is no JSON is refused', async () => {
    const answer = await fetchRaw('/v1/chat/completions', { method: 'POST', body: '{bad', headers: { 'content-type': 'application/json' } });
    assert.equal(answer.status, 400);
    assert.equal((await answer.json()).error.type, 'invalid_request_error');
  });
  await check('openai: an unknown path is not found, in the shape of errors', async () => {
    const answer = await fetchRaw('/v1/nothing');
    assert.equal(answer.status, 404);
    assert.equal((await answer.json()).error.type, 'not_found_error');
  });
  await check('openai: a wrong method is told the right one', async () => {
    const answer = await fetchRaw('/v1/chat/completions');
    assert.equal(answer.status, 405);
    assert.match(answer.headers.get('allow'), /POST/);
  });
  // A turn shares its whole prompt and its text with the next one; the template writes a call's arguments again, in its own form.
  await check('openai: of 20 turns of an agent 99 % of the shared prefix is cached', async () => {
    const messages = [{ role: 'system', content: `You are the agent of ${Date.now()}. ` + 'Use the tools. '.repeat(100) }, ...ask];
    let shared = 0, cached = 0;
    for (let turn = 0, before = 0; turn < 20; turn++) {
      const { usage, choices } = await chat({ messages, tools, tool_choice: turn % 4 === 3 ? 'auto' : named('get_weather'), max_tokens: 60, seed: turn });
      const { message, message: { tool_calls } } = choices[0];
      shared += before;
      cached += usage.prompt_tokens_details.cached_tokens;
      before = usage.prompt_tokens + (tool_calls ? 0 : usage.completion_tokens);
      messages.push(message, tool_calls ? { role: 'tool', tool_call_id: tool_calls[0].id, content: `Turn ${turn}: rain.` } : { role: 'user', content: `And on day ${turn}?` });
    }
    assert.ok(cached >= 0.99 * shared, `${cached} of ${shared} tokens`);
  });
  if (nContext) {
    await check('openai: a prompt longer than the context is refused with both sizes', async () => {
      const messages = [{ role: 'user', content: 'x yz '.repeat(nContext) }];
      const err = await errorOf(() => chat({ messages }));
      assert.equal(err.status, 400);
      assert.equal(err.type, 'exceed_context_size_error');
      assert.ok(err.error.n_prompt_tokens > err.error.n_ctx);
    });
  }
  await check('openai: answers have a request id', async () => {
    const { request_id } = await client.chat.completions.create({ model, messages: ask, max_tokens: 1 }).withResponse();
    assert.ok(request_id?.length > 0);
  });
  await check('openai: a stream that is left ends, and the next one begins', async () => {
    const stream = await chat({ stream: true, max_tokens: 400 });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      break;
    }
    assert.ok(stream.controller.signal.aborted);
    assert.ok((await chat({ max_tokens: 1 })).id);
  });
  await check('openai: a request is aborted', async () => {
    const abort = new AbortController();
    const waiting = client.chat.completions.create({ model, messages: ask, max_tokens: 400 }, { signal: abort.signal });
    setImmediate(() => abort.abort());
    assert.ok((await errorOf(() => waiting)) instanceof OpenAI.APIUserAbortError);
  });
  await check('openai: a busy server is asked again', async () => {
    await withBusyProxy(root, 2, async (baseURL, nRequests) => {
      const patient = new OpenAI({ baseURL, apiKey: key, maxRetries: 3 });
      const c = await patient.chat.completions.create({ model, messages: ask, max_tokens: 2 });
      assert.equal(c.object, 'chat.completion');
      assert.equal(nRequests(), 3);
    });
  });

  // ---- completions
  const complete = (more) => client.completions.create({ model, prompt: 'Once upon a time', max_tokens: 6, seed: 7, ...more });
  await check('openai: a text is completed', async () => {
    const c = await complete();
    assert.equal(c.object, 'text_completion');
    assert.equal(typeof c.choices[0].text, 'string');
    assert.ok(c.usage.completion_tokens <= 6);
  });
  await check('openai: several prompts have a choice each', async () => {
    assert.deepEqual((await complete({ prompt: ['Once', 'There'] })).choices.map((c) => c.index), [0, 1]);
  });
  await check('openai: echo repeats the prompt', async () => {
    const [choice] = (await complete({ echo: true })).choices;
    assert.ok(choice.text.includes('Once upon a time'));
  });
  await check('openai: completions have their own shape of logprobs', async () => {
    const { logprobs } = (await complete({ logprobs: 2 })).choices[0];
    assert.equal(logprobs.tokens.length, logprobs.token_logprobs.length);
    assert.equal(logprobs.tokens.length, logprobs.text_offset.length);
    assert.equal(logprobs.tokens.length, logprobs.top_logprobs.length);
  });
  await check('openai: a completion streams', async () => {
    const [whole, chunks] = [await complete(), await all(await complete({ stream: true }))];
    assert.equal(chunks.map((c) => c.choices[0]?.text ?? '').join(''), whole.choices[0].text);
  });

  // ---- embeddings
  const embed = (input, more) => client.embeddings.create({ model, input, ...more });
  await check('openai: embeddings are vectors of one size', async () => {
    const { data, usage } = await embed(['a dragon', 'a very small dragon']);
    assert.deepEqual(data.map((d) => d.index), [0, 1]);
    assert.ok(data[0].embedding.length > 0);
    assert.equal(data[0].embedding.length, data[1].embedding.length);
    assert.ok(usage.prompt_tokens > 0);
  });
  await check('openai: embeddings are the same as numbers and as bytes', async () => {
    const [floats, bytes] = [await embed('a dragon', { encoding_format: 'float' }), await embed('a dragon')];
    floats.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - bytes.data[0].embedding[i]) < 1e-5));
  });
}
