// Uses of the chat.
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { answer, ask, check, click, close, isTooWide, openPage, until } from './world.mjs';

const bodies = (page) => page.locator('.message > .body').allTextContents(); // innerText omits what is not visible
const longText = (page) => page.waitForFunction(() => (document.querySelector('.message:last-of-type .markdown')?.textContent.length ?? 0) > 30);

async function answering({ base, browser }) {
  const page = await openPage(browser, base);
  await ask(page, 'Tell me a story about a dragon.');
  const text = await answer(page);
  assert.ok(text.length > 40, text);
  const stats = await page.locator('.assistant .stats').innerText();
  assert.match(stats, /^[\d,.]+ tokens\/s · [\d,]+ tokens · .*context [\d,]+ of 16,384/);
  assert.equal(await page.locator('.row.here .title').innerText(), 'Tell me a story about a dragon.');
  await close(page);
}

async function stopping({ base, browser, stage }) {
  const page = await openPage(browser, base);
  stage.delay = 25;
  await ask(page, 'Tell me a long story.');
  await longText(page);
  await page.click('[aria-label=Stop]');
  const begun = await answer(page);
  assert.match(await page.locator('.message:last-of-type .note').innerText(), /Interrupted/);
  stage.delay = 0;
  await page.click('[aria-label="Continue this answer"]');
  const whole = await until('a longer answer', async () => (await page.locator('.note:not([hidden])').count()) === 0 && answer(page));
  assert.ok(whole.startsWith(begun) && whole.length > begun.length, `${begun} | ${whole}`);
  assert.equal(stage.bodies.at(-1).messages.at(-1).role, 'assistant');
  await close(page);
}

async function branching({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await ask(page, 'First question');
  const first = await answer(page);
  await page.hover('.message.user');
  await page.click('[aria-label="Edit and send again"]');
  await page.fill('.message.editing textarea', 'Second question');
  await answer(page, () => page.press('.message.editing textarea', 'Enter'));
  assert.equal((await bodies(page))[0], 'Second question');
  assert.deepEqual(stage.bodies.at(-1).messages.map((m) => m.content), ['Second question']);
  assert.equal(await page.locator('.message.user .branch-at').textContent(), '2/2');
  assert.equal(await answer(page, click(page, '.message.user [aria-label="Previous version"]')), first);
  assert.equal((await bodies(page))[0], 'First question');
  await answer(page, click(page, '.message.assistant [aria-label="Another answer"]'));
  assert.equal(await page.locator('.message.assistant .branch-at').textContent(), '2/2');
  await page.reload();
  await page.waitForSelector('.branch-at');
  assert.equal(await page.locator('.message.assistant .branch-at').textContent(), '2/2');
  assert.equal(await answer(page, click(page, '.message.assistant [aria-label="Previous version"]')), first);
  await close(page);
}

async function reloading({ base, browser, stage }) {
  const page = await openPage(browser, base);
  stage.delay = 25;
  await ask(page, 'Tell me a long story.');
  await longText(page);
  const begun = await page.locator('.message.assistant .markdown').textContent();
  await page.reload();
  await page.waitForSelector('.message.assistant .note:not([hidden])');
  const kept = await answer(page);
  assert.ok(kept.length >= begun.length - 1 && kept.startsWith(begun.slice(0, 30)), `${begun} | ${kept}`);
  assert.match(await page.locator('.note:not([hidden])').last().innerText(), /Interrupted/);
  stage.delay = 0;
  await page.click('[aria-label="Continue this answer"]');
  const whole = await until('a longer answer', async () => (await page.locator('.note:not([hidden])').count()) === 0 && answer(page));
  assert.ok(whole.startsWith(kept) && whole.length > kept.length, `${kept} | ${whole}`);
  await close(page);
}

async function files({ base, browser, dir }) {
  const page = await openPage(browser, base);
  await ask(page, 'To be kept');
  const text = await answer(page);
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('text=Export')]);
  const path = `${dir}/export.json`;
  await file.saveAs(path);
  assert.equal(JSON.parse(await readFile(path, 'utf8')).conversations.length, 1);
  await page.hover('.row');
  await page.click('[aria-label="Delete “To be kept”"]');
  await page.click('dialog .primary');
  await page.waitForSelector('.row', { state: 'detached' });
  await page.waitForSelector('.empty');
  await page.setInputFiles('input[type=file]', path);
  assert.equal(await answer(page, click(page, '.row .title')), text);
  await writeFile(path, '{"format": "other"}');
  await page.setInputFiles('input[type=file]', path);
  await page.waitForSelector('.toast:has-text("could not be read")');
  assert.equal(await page.locator('.row').count(), 1);
  await close(page);
}

async function keys({ keyedBase, browser, keyedStage }) {
  const page = await openPage(browser, keyedBase);
  await page.fill('#ask-key', 'wrong');
  await page.press('#ask-key', 'Enter');
  await page.waitForFunction(() => document.querySelector('#ask-key')?.value === '');
  await page.fill('#ask-key', 'sesame');
  await page.press('#ask-key', 'Enter');
  await page.waitForSelector('.model:has-text("demo")');
  await ask(page, 'Hello');
  await answer(page);
  assert.equal(keyedStage.keys.at(-1), 'Bearer sesame');
  await page.reload();
  await page.waitForSelector('.model:has-text("demo")');
  assert.equal(await page.locator('dialog').count(), 0);
  await close(page);
}

async function waiting({ base, browser, stage }) {
  stage.loading = { what: 'reading weights', percent: 43 };
  const page = await openPage(browser, base);
  await page.waitForSelector('.pill:has-text("Reading weights 43 %")');
  await ask(page, 'Are you there?');
  await page.waitForSelector('.pulse:has-text("43 %")');
  Object.assign(stage.loading, { percent: 87, seconds_left: 4 });
  await page.waitForSelector('.pulse:has-text("87 %, 4 s left")');
  stage.loading = null;
  assert.ok(await answer(page));
  await page.waitForSelector('.pill', { state: 'hidden' });
  await close(page);
}

async function settings({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.click('[aria-label=Settings]');
  await page.fill('#set-system', 'Speak like a pirate.');
  for (const [name, value] of [['temperature', '0'], ['top_k', '7'], ['max_tokens', '5'], ['seed', '3']]) await page.fill(`#set-${name}`, value);
  await page.fill('#set-top_p', '7');
  await page.click('text=Save');
  assert.match(await page.locator('.problem').innerText(), /Top P/);
  await page.fill('#set-top_p', '0.5');
  await page.click('text=Save');
  await ask(page, 'Hello');
  await answer(page);
  const { temperature, top_k, top_p, max_tokens, seed, messages } = stage.bodies.at(-1);
  assert.deepEqual({ temperature, top_k, top_p, max_tokens, seed }, { temperature: 0, top_k: 7, top_p: 0.5, max_tokens: 5, seed: 3 });
  assert.deepEqual(messages[0], { role: 'system', content: 'Speak like a pirate.' });
  assert.match(await page.locator('.message:last-of-type .note').innerText(), /Cut off/);
  await close(page);
}

async function parts({ base, browser, stage }) {
  const page = await openPage(browser, base);
  stage.played = [{ reasoning_content: 'Let me think. ' }, { reasoning_content: 'Yes.' }, { content: 'I ask.' },
    { tool_calls: [{ index: 0, id: 'c1', function: { name: 'get_weather', arguments: '{"city":' } }] }, { tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] }];
  await ask(page, 'Weather?');
  assert.equal(await answer(page), 'I ask.');
  assert.equal(await page.locator('.thought').isVisible(), false);
  await page.click('text=Reasoning');
  assert.equal(await page.locator('.thought').innerText(), 'Let me think. Yes.');
  assert.match(await page.locator('.call pre').innerText(), /"city": "Oslo"/);
  stage.played = [{ content: 'It rains.' }];
  await page.fill('.result input', 'rain');
  await page.press('.result input', 'Enter');
  await page.waitForSelector('text=It rains.');
  stage.played = null;
  const sent = stage.bodies.at(-1).messages;
  assert.deepEqual(sent.slice(-1), [{ role: 'tool', tool_call_id: 'c1', content: 'rain' }]);
  assert.equal(sent.at(-2).tool_calls[0].function.arguments, '{"city":"Oslo"}');
  await close(page);
}

async function failing({ base, browser }) {
  const page = await openPage(browser, base);
  await page.route('**/v1/chat/completions', (route) => route.abort());
  await ask(page, 'Hello');
  await page.waitForSelector('.note.bad:has-text("cannot be reached")');
  await page.unroute('**/v1/chat/completions');
  assert.ok(await answer(page, click(page, '[aria-label="Another answer"]')));
  await close(page);
}

// Sends with Enter and does something else in the same moment; driving the page step by step would not be fast enough.
const hurry = (page, text, then) => page.evaluate(([words, action]) => {
  const input = document.querySelector('#prompt');
  if (words) input.value = words;
  if (words) input.dispatchEvent(new Event('input', { bubbles: true }));
  const enter = () => input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
  if (words) enter();
  if (action === 'enter') enter();
  else for (const button of document.querySelectorAll(action)) (button.click(), words || button.click());
}, [text, then]);

const nMessages = (page) => page.locator('.message').count();

async function leavingAtOnce({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.model:has-text("demo")');
  await hurry(page, 'A question in a hurry', '.new');
  await page.waitForSelector('.row .title:has-text("A question in a hurry")');
  await page.waitForSelector('.empty');
  await page.click('.row .title');
  await page.waitForSelector('.message.assistant .note:has-text("Stopped before the first word")');
  assert.equal((await bodies(page))[0], 'A question in a hurry');
  assert.ok(await answer(page, click(page, '[aria-label="Another answer"]')));
  assert.equal(stage.bodies.at(-1).messages[0].content, 'A question in a hurry');
  await close(page);
}

async function sendingTwice({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.model:has-text("demo")');
  const before = stage.bodies.length, sent = () => stage.bodies.length - before;
  await hurry(page, '', '.starter:first-child');
  await answer(page);
  assert.deepEqual([sent(), await nMessages(page)], [1, 2], 'a double click of a starter');
  await answer(page, () => hurry(page, '', '.message.assistant [aria-label="Another answer"]'));
  assert.deepEqual([sent(), await page.locator('.message.assistant .branch-at').textContent()], [2, '2/2'], 'a double click of "Another answer"');
  await page.hover('.message.user');
  await page.click('[aria-label="Edit and send again"]');
  await answer(page, () => hurry(page, '', '.edit-foot .primary'));
  assert.deepEqual([sent(), await page.locator('.message.user .branch-at').textContent()], [3, '2/2'], 'a double click of an edited message');
  await answer(page, () => hurry(page, 'Twice by Enter', 'enter'));
  assert.deepEqual([sent(), await nMessages(page)], [4, 4], 'Enter twice');
  stage.played = [{ tool_calls: [{ index: 0, id: 'c1', function: { name: 'get_weather', arguments: '{}' } }] }];
  await answer(page, () => hurry(page, 'Weather?', 'none'));
  stage.played = null;
  await answer(page, () => hurry(page, '', '.result button'));
  assert.deepEqual([sent(), await nMessages(page)], [6, 8], 'the result of a tool, twice');
  await close(page);
}

async function sendingSoon({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.model:has-text("demo")');
  const before = stage.bodies.length;
  Object.assign(stage, { played: [{ content: 'The only ' }, { content: 'answer.' }], delay: 300 });
  await hurry(page, 'The first one', 'none');
  await page.waitForTimeout(40);
  await hurry(page, 'The second one', 'none');
  await page.evaluate(() => document.querySelector('[aria-label="Edit and send again"]').click());
  await page.evaluate(() => (document.querySelector('.editing textarea').value = 'An edited one'));
  await page.evaluate(() => document.querySelector('.edit-foot .primary').click());
  assert.equal(await page.inputValue('.editing textarea'), 'An edited one');
  assert.equal(await answer(page), 'The only answer.');
  await page.press('.editing textarea', 'Escape');
  assert.deepEqual([stage.bodies.length - before, await nMessages(page), await page.inputValue('#prompt')], [1, 2, 'The second one']);
  Object.assign(stage, { played: null, delay: 0 });
  await answer(page, () => page.press('#prompt', 'Enter'));
  assert.deepEqual(stage.bodies.at(-1).messages.map((m) => m.content), ['The first one', 'The only answer.', 'The second one']);
  await close(page);
}

async function openingTwo({ base, browser }) {
  const page = await openPage(browser, base);
  for (const words of ['Conversation one', 'Conversation two']) {
    await ask(page, words);
    await answer(page);
    await page.click('.new');
    await page.waitForSelector('.empty');
  }
  await page.evaluate(() => [...document.querySelectorAll('.row .title')].toReversed().forEach((b) => b.click()));
  await hurry(page, 'Where does this belong?', 'none');
  await until('the last one that was opened', async () => (await bodies(page))[0] === 'Conversation two' && (await page.locator('.row.here .title').textContent()) === 'Conversation two');
  await page.press('#prompt', 'Enter');
  await until('the question', async () => (await bodies(page))[2] === 'Where does this belong?');
  await answer(page);
  await page.reload();
  await page.waitForSelector('.message');
  assert.deepEqual((await bodies(page)).filter((_, i) => i % 2 === 0), ['Conversation two', 'Where does this belong?']);
  await close(page);
}

// With a browser whose storage is full.
async function fullStorage({ base, browser }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.model:has-text("demo")');
  await page.evaluate(() => (IDBObjectStore.prototype.put = () => { throw new DOMException('The disk is full.', 'QuotaExceededError'); }));
  await ask(page, 'Is this lost?');
  assert.ok(await answer(page));
  await page.waitForSelector('.toast:has-text("could not be stored")');
  assert.equal((await bodies(page))[0], 'Is this lost?');
  await ask(page, 'And this one?');
  assert.ok(await answer(page));
  assert.equal(await nMessages(page), 4);
  await close(page);
}

async function gettingModels({ base, browser }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.model:has-text("demo")');
  await page.click('[aria-label="Settings"]');
  await page.click('text=Get a model');
  await page.fill('#pull-name', 'tiny');
  await page.press('#pull-name', 'Enter');
  await page.waitForSelector('#pull .problem:has-text("Clients may not fetch or remove models: start the server with --models-dir FOLDER --pull.")');
  let answer = () => {};
  await page.route('**/api/pull', (route) => answer(route));
  const play = (...list) => (answer = (route) => route.fulfill({ contentType: 'application/x-ndjson', body: list.map((l) => `${JSON.stringify(l)}\n`).join('') }));
  const part = { status: 'pulling 0123456789ab', digest: 'sha256:01', total: 4194304, completed: 1048576 };
  play({ status: 'pulling manifest' }, part, { error: 'm.gguf has changed on the server' });
  await page.press('#pull-name', 'Enter');
  await page.waitForSelector('#pull .problem:has-text("m.gguf has changed on the server.")');
  play({ status: 'pulling manifest' }, part);
  await page.press('#pull-name', 'Enter');
  await page.waitForSelector('#pull .problem:has-text("the same name continues it")');
  answer = () => {}; // never
  await page.press('#pull-name', 'Enter');
  await page.click('dialog .primary:has-text("Stop")');
  await page.waitForSelector('#pull [role=status]:has-text("Stopped")');
  play({ status: 'pulling manifest' }, part, { status: 'verifying sha256 digest' }, { status: 'success' });
  await page.route('**/v1/models', async (route) => {
    const list = await (await route.fetch()).json();
    await route.fulfill({ json: { ...list, data: [...list.data, { id: 'tiny-latest' }] } });
  });
  await page.press('#pull-name', 'Enter');
  await page.waitForSelector('#pull [role=status]:has-text("tiny is here.")');
  await page.press('#pull-name', 'Escape');
  await page.waitForFunction(() => document.querySelector('.model select')?.value === 'tiny-latest');
  assert.deepEqual(await isTooWide(page), []);
  await close(page);
}

/** Browsers deny storage where the user has forbidden cookies. */
async function deniedStorage({ base, browser }) {
  const page = await openPage(browser, 'about:blank');
  await page.addInitScript(() => {
    for (const name of ['localStorage', 'sessionStorage', 'indexedDB']) Object.defineProperty(window, name, { get: () => { throw new DOMException('denied', 'SecurityError'); } });
  });
  await page.goto(base);
  await page.waitForSelector('.model:has-text("demo")');
  await page.waitForSelector('.toast:has-text("stores nothing")');
  await ask(page, 'Is this answered?');
  assert.ok(await answer(page));
  await page.click('[aria-label*="colours"]');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  await close(page);
}

const sendButton = '.composer .send';

async function drafts({ base, browser }) {
  const page = await openPage(browser, base);
  await page.waitForSelector(`${sendButton}.idle[aria-disabled=true]`);
  await ask(page, 'The one that is kept');
  await answer(page);
  await page.fill('#prompt', 'half a thought');
  await page.click('.new');
  await page.waitForSelector('.empty');
  assert.equal(await page.inputValue('#prompt'), '');
  await page.fill('#prompt', 'another thought');
  await page.waitForSelector(`${sendButton}[aria-disabled=false]:not(.idle)`);
  await page.reload();
  await page.waitForSelector('.row');
  await page.waitForFunction(() => document.querySelector('#prompt').value === 'another thought');
  await page.click('.row .title');
  await page.waitForFunction(() => document.querySelector('#prompt').value === 'half a thought');
  await page.waitForSelector('.message'); // it is open, so that it is the one that the page loads again
  await page.reload();
  await page.waitForSelector('.message');
  assert.equal(await page.inputValue('#prompt'), 'half a thought');
  await page.press('#prompt', 'Enter');
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 4 && document.querySelector('#prompt').value === '');
  await answer(page);
  await page.reload();
  await page.waitForSelector('.message');
  assert.equal(await page.inputValue('#prompt'), '', 'what was sent is no draft');
  await page.waitForSelector(`${sendButton}.idle`);
  await close(page);
}

const drop = (page, files) => page.evaluate((list) => {
  const data = new DataTransfer();
  for (const [name, parts] of list) data.items.add(new File(parts.map((p) => (typeof p === 'string' ? p : new Uint8Array(p))), name));
  const event = (type) => new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true });
  return ['dragover', 'drop'].map((type) => !document.querySelector('#cluster').dispatchEvent(event(type))); // anywhere on the page
}, files);

async function dropping({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.model:has-text("demo")');
  const said = async (words, files) => {
    assert.deepEqual(await drop(page, files), [true, true], 'the browser opens the file in place of the page');
    await page.waitForSelector(`.toast:has-text("${words}")`);
  };
  await said('is not a text file', [['photo.png', [[0x89, 0x50, 0x4e, 0x47, 0, 1]]]]);
  await said('too large', [['long.txt', ['x'.repeat((512 << 10) + 1)]]]);
  assert.equal(await page.locator('.files li').count(), 0);
  await drop(page, [['notes.txt', ['first line\n```\nsecond']], ['latin.txt', [[0xff, 0xfe, 0x68, 0, 0x69, 0]]]]);
  await page.waitForFunction(() => document.querySelectorAll('.entry-files li').length === 2);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('.entry-files li').length === 2);
  await page.click('[aria-label="Remove latin.txt"]');
  await page.fill('#prompt', 'What does it say?');
  stage.played = [{ content: 'It says so.' }];
  await answer(page, () => page.press('#prompt', 'Enter'));
  const content = 'notes.txt:\n````\nfirst line\n```\nsecond\n````\n\nWhat does it say?';
  assert.equal(stage.bodies.at(-1).messages[0].content, content);
  assert.match(await page.locator('.message.user .files').textContent(), /notes\.txt/);
  assert.equal(await page.locator('.entry-files li').count(), 0);
  await page.reload();
  await page.waitForSelector('.message.user .files');
  await answer(page, click(page, '.message.assistant [aria-label="Another answer"]'));
  stage.played = null;
  assert.equal(stage.bodies.at(-1).messages[0].content, content);
  await close(page);
}

async function away({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await ask(page, 'Are you there?');
  await answer(page);
  const server = /\/(health|v1\/|kin\/events)/, isShown = () => page.locator('.away').isVisible();
  assert.equal(await isShown(), false);
  await page.route(server, (route) => route.abort());
  await ask(page, 'And now?');
  await page.waitForSelector('.pulse:has-text("the server does not answer")');
  const words = await page.locator('body').innerText();
  assert.deepEqual([words.match(/cannot be reached|The server does not answer/g).length, await page.locator('.note.bad').count(), await isShown()], [1, 0, true]);
  await page.click('[data-view=cluster]');
  assert.ok(await isShown());
  await page.click('[data-view=chat]');
  const before = stage.bodies.length;
  await page.unroute(server);
  await page.click('text=Retry now');
  assert.ok(await answer(page));
  assert.deepEqual([stage.bodies.length - before, await nMessages(page), await isShown()], [1, 4, false]);
  stage.played = [{ content: 'It breaks ' }, { content: 'here' }, null];
  await answer(page, () => ask(page, 'A third one'));
  stage.played = null;
  assert.deepEqual([await page.locator('.note.bad').count(), await page.locator('.message:last-of-type .note').innerText()], [0, 'Interrupted: this is what was written so far.']);
  await close(page);
}

async function renaming({ base, browser }) {
  const page = await openPage(browser, base), title = () => page.locator('.row .title').textContent();
  await ask(page, 'Its first name');
  await answer(page);
  await page.hover('.row');
  await page.click('[aria-label="Rename “Its first name”"]');
  await page.fill('#new-title', 'Its second name');
  await page.click('dialog .primary');
  await until('the name', async () => (await title()) === 'Its second name');
  await ask(page, 'And on');
  await answer(page);
  await page.reload();
  await page.waitForSelector('.message');
  assert.equal(await title(), 'Its second name');
  assert.equal((await bodies(page)).at(-2), 'And on');
  await close(page);
}

async function elsewhere({ base, browser, stage }) {
  const page = await openPage(browser, base), shows = (selector, words) => other.waitForSelector(`${selector}:has-text("${words}")`);
  stage.delay = 25;
  await ask(page, 'Tell me a long story.');
  await longText(page);
  const other = await page.context().newPage();
  other.problems = page.problems;
  other.setDefaultTimeout(30000);
  await other.goto(base);
  await other.click('.row .title');
  await shows('.message.assistant .stats', 'Being written in another tab');
  const length = () => other.evaluate(() => document.querySelector('.message:last-of-type .markdown').textContent.length), begun = await length();
  await until('it grows there, too', async () => (await length()) > begun);
  await hurry(other, 'Not now', 'none');
  await shows('.toast', 'Another tab is writing in this conversation');
  assert.deepEqual([await other.inputValue('#prompt'), await nMessages(other)], ['Not now', 2]);
  stage.delay = 0;
  const text = await answer(page);
  assert.equal(await answer(other), text);
  await other.press('#prompt', 'Enter');
  await page.waitForFunction(() => document.querySelectorAll('.message.assistant[aria-busy=false]').length === 2); // the first tab follows
  assert.equal((await bodies(page))[2], 'Not now');
  assert.equal(await answer(page), await answer(other));
  Object.assign(stage, { delay: 25, played: Array.from({ length: 2000 }, (_, i) => ({ content: `word${i} ` })) });
  await ask(page, 'Tell me a very long story.');
  await longText(page);
  await page.close();
  Object.assign(stage, { delay: 0, played: null });
  await shows('.message:last-of-type .note', 'Interrupted');
  await close(other);
}

async function models({ base, browser }) {
  const page = await openPage(browser, base);
  const list = [['qwen3-8b', 5027783488, 'loaded'], ['demo', 4088576, 'unloaded']].map(([id, size, value]) => ({ id, meta: { size, ...(value === 'loaded' && { n_ctx: 4096 }) }, status: { value } }));
  await page.route('**/v1/models', (route) => route.fulfill({ json: { data: list } }));
  await page.reload();
  await page.waitForSelector('.model select');
  const options = () => page.locator('.model option').allTextContents();
  assert.deepEqual(await options(), ['qwen3-8b · 4.7 GiB, loaded', 'demo · 3.9 MiB']);
  assert.match(await page.locator('.meter-text').innerText(), /4,096/);
  await page.selectOption('.model select', 'demo');
  assert.equal(await page.locator('.meter-text').innerText(), '', 'the context of another model');
  Object.assign(list[1], { meta: { size: 4088576, n_ctx: 512 }, status: { value: 'loaded' } });
  list[0].status.value = 'unloaded';
  await ask(page, 'Hello');
  await answer(page);
  await until('what is loaded now', async () => (await options()).join() === 'qwen3-8b · 4.7 GiB,demo · 3.9 MiB, loaded');
  await close(page);
}

export async function chats(world) {
  await check('a question gets an answer, with its speed and the context that it fills', () => answering(world));
  await check('a stopped answer keeps what was written, and can be continued', () => stopping(world));
  await check('an edited message and another answer are branches; the others stay, also when the page is loaded again', () => branching(world));
  await check('a page that is loaded again in mid-answer has what was written', () => reloading(world));
  await check('conversations go out to a file and come back; another file changes nothing', () => files(world));
  await check('a server with a key is asked with the one that was typed, which is kept', () => keys(world));
  await check('a question that is sent and left in one moment is kept, and can be answered', () => leavingAtOnce(world));
  await check('what is sent twice in one moment is sent once', () => sendingTwice(world));
  await check('a second message while the first is answered stays in the entry', () => sendingSoon(world));
  await check('of two conversations opened in one moment the last is there, and what is sent belongs to it', () => openingTwo(world));
  await check('where the browser can keep nothing, questions are answered and it is said', () => fullStorage(world));
  await check('a model is fetched by its name, with its progress; what goes wrong is said in a sentence', () => gettingModels(world));
  await check('where the browser denies storage the page works as long as it is open', () => deniedStorage(world));
  await check('while the model is loaded its progress is shown, and the question waits', () => waiting(world));
  await check('settings are sent; a number that cannot be is refused', () => settings(world));
  await check('reasoning is folded, calls of tools are shown and answered', () => parts(world));
  await check('a draft and its files stay with their conversation when the page is loaded again; an empty entry dims the button', () => drafts(world));
  await check('text files that are dropped go with the message; others are refused in a sentence', () => dropping(world));
  await check('a server that is away is said once; the question waits for it, and what was written stays', () => away(world));
  await check('a conversation that was renamed keeps its name when it goes on', () => renaming(world));
  await check('a conversation that another tab writes in is followed, and nothing is sent into it meanwhile', () => elsewhere(world));
  await check('the choice of models has their sizes, and says which are loaded', () => models(world));
  await check('a server that cannot be reached is said, and the answer can be tried again', () => failing(world));
}
