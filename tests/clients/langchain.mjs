// @langchain/openai: chats, streams, tools, structured output, embeddings, the Responses API.
import assert from 'node:assert/strict';
import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { all, expectWeather, weather } from './harness.mjs';

const ask = [new HumanMessage('Tell me a story about a dragon.')];
const tools = [{ type: 'function', function: weather }];

export default async function (check, { v1, key, model }) {
  const common = { model, apiKey: key, configuration: { baseURL: v1 }, maxRetries: 0 };
  const chat = (more) => new ChatOpenAI({ ...common, maxTokens: 12, temperature: 0.8, ...more });

  await check('langchain: a chat is answered, with usage', async () => {
    const m = await chat().invoke(ask);
    assert.equal(typeof m.content, 'string');
    assert.ok(m.usage_metadata.input_tokens > 0);
    assert.ok(['stop', 'length'].includes(m.response_metadata.finish_reason));
  });
  await check('langchain: a stream adds up, with usage', async () => {
    const chunks = await all(await chat({ streamUsage: true }).stream(ask));
    const whole = chunks.reduce((sum, chunk) => sum.concat(chunk));
    assert.ok(whole.usage_metadata.output_tokens > 0);
  });
  await check('langchain: several are asked at once', async () => {
    assert.equal((await chat().batch([ask, ask, ask])).length, 3);
  });
  await check('langchain: a bound tool is called', async () => {
    const bound = chat({ maxTokens: 200 }).bindTools(tools, { tool_choice: 'get_weather' });
    const { tool_calls } = await bound.invoke(ask);
    assert.equal(tool_calls[0].name, 'get_weather');
    expectWeather(tool_calls[0].args);
  });
  await check('langchain: a result is answered', async () => {
    const call = new AIMessage({ content: '', tool_calls: [{ id: 'call12345', name: 'get_weather', args: { city: 'Oslo', celsius: true } }] });
    const result = new ToolMessage({ content: 'sunny', tool_call_id: 'call12345' });
    assert.equal(typeof (await chat().bindTools(tools, { tool_choice: 'none' }).invoke([...ask, call, result])).content, 'string');
  });
  for (const method of ['jsonSchema', 'functionCalling']) {
    await check(`langchain: structured output holds: ${method}`, async () => {
      const structured = chat({ maxTokens: 200 }).withStructuredOutput(weather.parameters, { method, name: 'weather', strict: true });
      expectWeather(await structured.invoke(ask));
    });
  }
  await check('langchain: logprobs are there', async () => {
    const m = await chat({ logprobs: true, topLogprobs: 1 }).invoke(ask);
    assert.ok(m.response_metadata.logprobs.content.length > 0);
  });
  await check('langchain: texts are embedded', async () => {
    const vectors = await new OpenAIEmbeddings(common).embedDocuments(['a dragon', 'a mouse']);
    assert.equal(vectors.length, 2);
    assert.equal(vectors[0].length, vectors[1].length);
  });
  await check('langchain: the Responses API is spoken', async () => {
    const m = await chat({ useResponsesApi: true, maxTokens: 16 }).invoke(ask);
    assert.ok(m.usage_metadata.output_tokens > 0);
    const chunks = await all(await chat({ useResponsesApi: true, maxTokens: 16 }).stream(ask));
    assert.ok(chunks.length > 0);
  });
}
