// A newcomer's first message: node first_chat.mjs URL MESSAGE prints the answer and what the view of the cluster shows.
import { answer, ask, openBrowser, openPage } from './world.mjs';

const browser = await openBrowser();
const page = await openPage(browser, process.argv[2]);
await ask(page, process.argv[3]);
console.log(await answer(page));
await page.click('[data-view=cluster]');
await page.waitForSelector('.card');
console.log(`${await page.locator('.card').count()} cards: ${(await page.locator('.card h3, .card .name').allTextContents()).join(', ')}`);
await browser.close();
