// Real clients against a running server:  node run.mjs BASE_URL [WORD]
//
// BASE_URL is the server's root ("http://127.0.0.1:8080"); with WORD, only checks whose names contain it run. Environment: KIN_API_KEY, and
// MODEL (default: the first one listed). The checks hold for any model, even for one that writes only children's stories: they look at
// structure, never at content. Grammars, whose texts are bounded, enforce calls and forms; seeds make texts equal.
import { check, report, setup } from './harness.mjs';
import anthropic from './anthropic.mjs';
import langchain from './langchain.mjs';
import ollama from './ollama.mjs';
import openai from './openai.mjs';
import responses from './responses.mjs';
import schemas from './schemas.mjs';
import vercel from './vercel.mjs';

const [base, word] = process.argv.slice(2);
if (!base) {
  console.error('usage: node run.mjs BASE_URL [WORD]');
  process.exit(2);
}
const server = await setup(base, word);
for (const checks of [openai, responses, anthropic, ollama, vercel, langchain, schemas]) await checks(check, server);
process.exit(report());
