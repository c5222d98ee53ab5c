// The page's appearance for all users: sizes, colours, keyboard, accessible names; long conversations; texts that try to be markup.
import assert from 'node:assert/strict';
import { answer, ask, check, close, hosts, isTooWide, openPage } from './world.mjs';

const RICH = '# Title\n\n| a | b |\n|---|---|\n| averyveryverylongcellwithoutanyspace | averyveryverylongcellwithoutanyspaceaverylong |\n\n```js\nconst line = "a very long line of code that does not fit onto any phone at all";\n```\n\n> quote\n\n1. one\n   - two\n\n**bold** *it* `code` [link](https://example.org/) https://example.org/path $\\frac{1}{x_1}$\n\n- [x] a task\n\n$$\\sum_{i=1}^{n} a_i + b_i + c_i + d_i + e_i + f_i + g_i + h_i + k_i + l_i + m_i = \\foo$$';

const HOSTILE = [
  '<script>window.pwned = 1</script>', '<img src=x onerror="window.pwned = 1">', '<svg/onload=window.pwned=1>', '<iframe srcdoc="<script>parent.pwned=1</script>">',
  '[click](javascript:window.pwned=1)', '[click](JaVaScRiPt:window.pwned=1)', '[click](java\tscript:window.pwned=1)', '[click](data:text/html,<script>1</script>)', '[click](vbscript:x)',
  '![x](javascript:window.pwned=1)', '![pic](https://example.org/x.png)', '<javascript:window.pwned=1>', '[a](https://example.org/" onmouseover="window.pwned=1)',
  '```"><script>window.pwned = 1</script>\n<b>x</b>\n```', '| <img src=x onerror=window.pwned=1> | b |\n|---|---|\n| <script>window.pwned=1</script> | [x](javascript:1) |',
  '# <img src=x onerror=window.pwned=1>', '> <script>window.pwned=1</script>', '- <a href="javascript:window.pwned=1">x</a>', '$<img src=x onerror=window.pwned=1>$', '$$\\text{<script>window.pwned=1</script>}$$', '\\(\\href{javascript:window.pwned=1}{x}\\)', '\\[\\class{x" onload="window.pwned=1}{<svg onload=window.pwned=1>}\\]',
  '&lt;script&gt;', '<style>body{display:none}</style>',
];

async function rich(world, options) {
  const page = await openPage(world.browser, world.base, options);
  world.stage.played = [{ content: RICH }];
  await ask(page, 'A question that is not short, so that it has to be broken into several lines on a phone');
  await answer(page);
  world.stage.played = null;
  return page;
}

async function phone(world) {
  const page = await rich(world, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 });
  assert.deepEqual(await isTooWide(page), []);
  const small = await page.evaluate(() => [...document.querySelectorAll('#bar button, .composer button')].filter((b) => b.offsetWidth && (b.offsetWidth < 32 || b.offsetHeight < 30)).map((b) => b.outerHTML));
  assert.deepEqual(small, []);
  await page.click('[aria-label=Conversations].icon-button');
  await page.waitForFunction(() => document.querySelector('#sidebar').getBoundingClientRect().left === 0);
  await page.click('.new');
  await page.waitForSelector('.empty');
  assert.deepEqual(await isTooWide(page), []);
  await page.click('[data-view=cluster]');
  await page.waitForSelector('.card');
  assert.deepEqual(await isTooWide(page), []);
  await close(page);
}

// All visible texts whose contrast with their background is below 4.5.
const pale = (page) => page.evaluate(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (color) => (canvas.clearRect(0, 0, 1, 1), (canvas.fillStyle = color), canvas.fillRect(0, 0, 1, 1), [...canvas.getImageData(0, 0, 1, 1).data]);
  const light = ([r, g, b]) => [r, g, b].map((c) => ((c /= 255), c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) if (rgba(getComputedStyle(e).backgroundColor)[3] === 255) return rgba(getComputedStyle(e).backgroundColor);
    return [255, 255, 255];
  };
  const out = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || e.closest('svg, :disabled, .off-screen, .gone') || ['SCRIPT', 'NOSCRIPT'].includes(e.tagName)) continue;
    const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.push(`${e.tagName}.${e.className} "${e.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return out;
});

async function colours(world) {
  for (const colorScheme of ['light', 'dark']) {
    const page = await rich(world, { colorScheme });
    const isDark = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/)[0] < 100);
    assert.equal(await isDark(), colorScheme === 'dark');
    assert.deepEqual(await pale(page), []);
    await page.click('[data-view=cluster]');
    await page.waitForSelector('.card');
    assert.deepEqual(await pale(page), []);
    await page.click('[aria-label=Settings]');
    assert.deepEqual(await pale(page), []);
    await page.keyboard.press('Escape');
    for (let i = 0; i < (colorScheme === 'dark' ? 1 : 2); i++) await page.click('[aria-label*=colours]'); // until it is the other scheme
    assert.equal(await isDark(), colorScheme === 'light');
    await page.reload();
    await page.waitForSelector('.tabs');
    assert.equal(await isDark(), colorScheme === 'light');
    await close(page);
  }
}

const focused = (page) => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);

async function tabTo(page, name, back) {
  for (let i = 0; i < 60; i++) {
    if ((await focused(page)) === name) return;
    await page.keyboard.press(back ? 'Shift+Tab' : 'Tab');
  }
  assert.fail(`no Tab leads to ${name}`);
}

async function keyboard({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.empty');
  await tabTo(page, 'Message');
  await page.keyboard.type('Tell me a story.');
  stage.delay = 25;
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.assistant .markdown')?.textContent.length > 10);
  await page.keyboard.press('Escape');
  await answer(page);
  stage.delay = 0;
  await tabTo(page, 'Edit and send again', true);
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(ring, 'solid');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('Another one.');
  await answer(page, () => page.keyboard.press('Enter'));
  await tabTo(page, 'Previous version', true);
  await page.keyboard.press('Space');
  await page.waitForSelector('text=Tell me a story. >> nth=0');
  await tabTo(page, 'Cluster', true);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.card');
  await tabTo(page, 'Settings');
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.equal(await focused(page), 'Settings');
  await close(page);
}

const unnamed = (page) => page.evaluate(() => {
  const name = (e) => e.getAttribute('aria-label') || [...(e.labels ?? [])].map((l) => l.textContent).join('') || (e.matches('input, textarea, select') ? '' : e.textContent.trim());
  return [...document.querySelectorAll('button, input, textarea, select, a[href], summary, nav, section, article, dialog, [role=img], [role=log], [role=group]')].filter((e) => !name(e)).map((e) => e.outerHTML.slice(0, 120));
});

async function names(world) {
  const page = await rich(world, {});
  assert.deepEqual(await unnamed(page), []);
  assert.equal(await page.locator('[role=log][aria-live=polite]').count(), 1);
  assert.equal(await page.evaluate(() => document.documentElement.lang), 'en');
  await page.click('[aria-label=Settings]');
  assert.deepEqual(await unnamed(page), []);
  await page.keyboard.press('Escape');
  await page.hover('.message.user');
  await page.click('[aria-label="Edit and send again"]');
  assert.deepEqual(await unnamed(page), []);
  await page.keyboard.press('Escape');
  await page.click('[data-view=cluster]');
  await page.waitForSelector('.card');
  assert.deepEqual(await unnamed(page), []);
  await close(page);
}

const MANY = 200;
async function many({ base, browser, stage }) {
  const page = await openPage(browser, base);
  await page.waitForSelector('.empty');
  const messages = Array.from({ length: MANY }, (_, i) => ({ id: `${i}`, parent: i ? `${i - 1}` : null, role: i % 2 ? 'assistant' : 'user', content: `${i}: ${RICH}`, created: i + 1 }));
  const file = { format: 'kin conversations 1', conversations: [{ id: 'c', title: 'Many', current: `${MANY - 1}`, updated: Date.now(), messages }] };
  await page.setInputFiles('input[type=file]', { name: 'many.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
  await page.click('.row .title');
  await page.waitForFunction((n) => document.querySelectorAll('.message').length === n, MANY);
  await page.evaluate(() => {
    window.firstNode = document.querySelector('.message');
    window.gaps = [];
    let before = performance.now();
    const tick = (now) => (window.gaps.push(now - before), (before = now), requestAnimationFrame(tick));
    requestAnimationFrame(tick);
  });
  stage.delay = 8;
  stage.played = Array.from({ length: 150 }, (_, i) => ({ content: `word${i} **bold** ${i % 20 === 19 ? '\n\n' : ''}` }));
  await ask(page, 'Go on.');
  await answer(page);
  stage.delay = 0;
  stage.played = null;
  const { same, gaps } = await page.evaluate(() => ({ same: window.firstNode === document.querySelector('.message'), gaps: window.gaps }));
  gaps.sort((a, b) => b - a);
  assert.ok(same, 'the list was drawn anew');
  assert.ok(gaps[3] < 120, `frames took ${gaps.slice(0, 5).map(Math.round)} ms`);
  console.log(`# the longest frames with ${MANY} messages: ${gaps.slice(0, 3).map(Math.round).join(', ')} ms`);
  const left = await page.evaluate(() => { const s = document.querySelector('.scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight; });
  assert.ok(left < 80, `the end is ${left} pixels away`);
  await close(page);
}

async function hostile({ base, browser, stage }) {
  const page = await openPage(browser, base);
  for (const text of [HOSTILE.join('\n\n'), ...HOSTILE.slice(0, 4)]) {
    stage.played = [...text].reduce((parts, c, i) => (i % 7 ? (parts[parts.length - 1].content += c) : parts.push({ content: c }), parts), []);
    await ask(page, '<img src=x onerror="window.pwned=1"> **no**');
    await answer(page);
  }
  stage.played = null;
  const found = await page.evaluate(() => ({
    pwned: window.pwned,
    elements: [...document.querySelectorAll('#chat script, #chat img, #chat iframe, #chat style, #chat object, #chat form form, .markdown svg:not(.icon), .markdown [href]:not(a)')].map((e) => e.outerHTML),
    links: [...document.querySelectorAll('#chat a')].map((a) => [a.protocol, a.rel, [...a.attributes].map((x) => x.name).sort().join()]),
    handlers: [...document.querySelectorAll('#chat *')].filter((e) => [...e.attributes].some((a) => a.name.startsWith('on'))).length,
    text: document.querySelector('.markdown').innerText,
  }));
  assert.equal(found.pwned, undefined);
  assert.deepEqual(found.elements, []);
  assert.equal(found.handlers, 0);
  for (const [protocol, rel, attributes] of found.links) assert.ok(['https:', 'http:', 'mailto:'].includes(protocol) && /noopener/.test(rel) && attributes === 'href,rel,target', `${protocol} ${rel} ${attributes}`);
  assert.match(found.text, /<script>window\.pwned = 1<\/script>/);
  assert.match(found.text, /onerror="window\.pwned = 1"/);
  await close(page);
}

async function joinPage(world) {
  const { base } = await world.ring;
  for (const colorScheme of ['light', 'dark']) {
    const look = (page) => page.evaluate(() => {
      const logo = document.querySelector('.logo'), { borderColor, width } = getComputedStyle(logo);
      return { words: logo.parentElement.textContent.trim(), borderColor, width, font: getComputedStyle(logo.parentElement).fontSize, background: getComputedStyle(document.body).backgroundColor, text: getComputedStyle(document.body).color };
    });
    const page = await openPage(world.browser, base, { colorScheme }), whole = await look(page);
    await page.goto(`${base}join`);
    await page.waitForSelector('#form');
    assert.deepEqual(await look(page), whole);
    assert.deepEqual(await pale(page), []);
    await page.setViewportSize({ width: 320, height: 640 });
    assert.deepEqual(await isTooWide(page), []);
    await page.evaluate(() => localStorage.setItem('kin.theme', 'light'));
    await page.addInitScript((said) => (window.Worker = class {
      postMessage() {
        for (const data of said) this.onmessage({ data });
      }
    }), [{ type: 'opened', windows: [[2, 4], [6, 7]], layers: 8, fetched: 0, ms: 0 }, { type: 'status', line: 'Ready.' }]);
    await page.reload();
    assert.equal((await look(page)).background, 'rgb(255, 255, 255)');
    await page.fill('#code', 'ABCD');
    await page.click('#join');
    assert.equal(await page.locator('#layers').innerText(), '2–3, 6 of 8');
    await page.addInitScript(() => (window.Worker.prototype.postMessage = function () {
      this.onmessage({ data: { type: 'opened', windows: [], layers: 8, fetched: 0, ms: 0 } });
    }));
    await page.reload();
    await page.fill('#code', 'ABCD');
    await page.click('#join');
    assert.equal(await page.locator('#layers').innerText(), 'none: it only relays');
    await close(page);
  }
}

async function alone({ base, keyedBase, ring, pair }) {
  const own = new Set([...[base, keyedBase, (await ring).base, pair.base].map((url) => new URL(url).host), 'data:', 'blob:']);
  assert.deepEqual([...hosts].filter((h) => !own.has(h)), []);
  assert.ok(hosts.size >= 2);
}

export async function looks(world) {
  await check('on a phone of 360 pixels nothing is cut off', () => phone(world));
  await check('light and dark, by the system and by the switch; every text has a contrast of 4.5', () => colours(world));
  await check('all of it works with the keyboard only', () => keyboard(world));
  await check('every control has a name', () => names(world));
  await check('200 messages, without a stutter while the next one is written', () => many(world));
  await check('Markdown that wants to be a script stays text', () => hostile(world));
  await check('the page of those that join wears the same header and colours, and says which layers it has', () => joinPage(world));
  await check('nobody but the server was asked', () => alone(world));
}
