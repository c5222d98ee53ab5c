// ollama: chats, generations, embeddings, models.
import assert from 'node:assert/strict';
import { Ollama } from 'ollama';
import { all, ask, errorOf, expectWeather, weather, wholeNumber } from './harness.mjs';

export default async function (check, { root, key, model }) {
  const client = new Ollama({ host: root, headers: { Authorization: `Bearer ${key}` } });
  const options = { num_predict: 12, seed: 7, temperature: 0.8 };

  await check('ollama: version, list and show tell of the model', async () => {
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+/);
    const { models } = await client.list();
    assert.ok(models.some((m) => m.name === model));
    const shown = await client.show({ model });
    assert.ok(shown.capabilities.includes('completion'));
    assert.ok(shown.model_info['general.architecture']);
    assert.equal(shown.details.format, 'gguf');
  });
  await check('ollama: a chat is answered with counts and times', async () => {
    const r = await client.chat({ model, messages: ask, options });
    assert.equal(r.message.role, 'assistant');
    assert.equal(r.done, true);
    assert.ok(['stop', 'length'].includes(r.done_reason));
    assert.ok(!Number.isNaN(new Date(r.created_at).getTime()));
    for (const name of ['total_duration', 'prompt_eval_count', 'eval_count', 'eval_duration']) wholeNumber(r[name]);
  });
  await check('ollama: a chat streams lines that make the same text', async () => {
    const whole = await client.chat({ model, messages: ask, options });
    const parts = await all(await client.chat({ model, messages: ask, options, stream: true }));
    assert.equal(parts.map((p) => p.message.content).join(''), whole.message.content);
    assert.deepEqual(parts.map((p) => p.done), parts.map((_, i) => i === parts.length - 1));
  });
  await check('ollama: a body without stream is streamed', async () => {
    const body = JSON.stringify({ model, messages: ask, options: { num_predict: 2 } });
    const answer = await fetch(`${root}/api/chat`, { method: 'POST', body, headers: { authorization: `Bearer ${key}` } });
    assert.match(answer.headers.get('content-type'), /ndjson/);
    await answer.text();
  });
  await check('ollama: a format is held', async () => {
    const r = await client.chat({ model, messages: ask, format: weather.parameters, options: { num_predict: 200 } });
    expectWeather(JSON.parse(r.message.content));
  });
  await check('ollama: a conversation with tools is understood', async () => {
    const call = { function: { name: 'get_weather', arguments: { city: 'Oslo', celsius: true } } };
    const messages = [...ask, { role: 'assistant', content: '', tool_calls: [call] }, { role: 'tool', tool_name: 'get_weather', content: 'sunny' }];
    const r = await client.chat({ model, messages, tools: [{ type: 'function', function: weather }], options });
    assert.equal(r.done, true);
  });
  await check('ollama: a prompt is generated from, raw too', async () => {
    for (const raw of [false, true]) {
      const r = await client.generate({ model, prompt: 'Once upon a time', raw, options });
      assert.equal(typeof r.response, 'string');
      assert.ok(r.eval_count > 0);
    }
  });
  await check('ollama: an empty prompt asks for the model only', async () => {
    assert.equal((await client.generate({ model, prompt: '' })).done_reason, 'load');
  });
  await check('ollama: texts are embedded', async () => {
    const { embeddings } = await client.embed({ model, input: ['a dragon', 'a mouse'] });
    assert.equal(embeddings.length, 2);
    assert.ok(embeddings[0].length > 0);
    const answer = await fetch(`${root}/api/embeddings`, { // an endpoint that the client no longer uses
      method: 'POST', headers: { authorization: `Bearer ${key}` }, body: JSON.stringify({ model, prompt: 'a dragon' }),
    });
    const { embedding } = await answer.json();
    const length = Math.hypot(...embedding);
    embedding.forEach((x, i) => assert.ok(Math.abs(x / length - embeddings[0][i]) < 1e-4));
  });
  await check('ollama: an error is a sentence', async () => {
    const err = await errorOf(() => client.chat({ model, messages: [{ role: 'user', content: 7 }] }));
    assert.equal(err.status_code, 400);
    assert.match(err.message, /messages\[0\]\.content/);
  });
}
