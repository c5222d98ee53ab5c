// A proxy between the page and kin: it delivers answers slowly, so that a test can act in the middle of an answer, and it plays answers
// that the demo model would never write.
import http from 'node:http';

const sleep = (ms) => new Promise((later) => setTimeout(later, ms));

export class Stage {
  constructor(target) {
    this.target = new URL(target);
    this.delay = 0; // ms between the events of an answer
    this.played = null; // deltas of the next answers, instead of kin's; null breaks the connection
    this.loading = null; // {what, percent}: the model is still loading
    this.bodies = []; // bodies of requests for answers
    this.keys = []; // Authorization headers of all requests
  }

  async open() {
    this.server = http.createServer((request, answer) => this.take(request, answer).catch(() => answer.destroy()));
    await new Promise((ready) => this.server.listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.server.address().port}/`;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async take(request, answer) {
    const isAnswer = request.url === '/v1/chat/completions';
    this.keys.push(request.headers.authorization);
    const body = await new Promise((whole) => {
      const parts = [];
      request.on('data', (p) => parts.push(p)).on('end', () => whole(Buffer.concat(parts)));
    });
    if (isAnswer) this.bodies.push(JSON.parse(body));
    const isOpen = request.url === '/' || request.url.startsWith('/page/') || request.url.startsWith('/kin/');
    if (this.loading && !isOpen) {
      answer.writeHead(503, { 'content-type': 'application/json', 'retry-after': '1' });
      return void answer.end(JSON.stringify({ error: { code: 503, message: 'Loading model', type: 'unavailable_error', loading: this.loading } }));
    }
    if (isAnswer && this.played) return this.play(answer);
    await this.forward(request, body, answer, isAnswer);
  }

  async play(answer) {
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    const send = (event) => answer.write(`data: ${JSON.stringify(event)}\n\n`);
    for (const delta of this.played) {
      if (answer.destroyed) return;
      if (!delta) return void answer.destroy();
      send({ choices: [{ index: 0, delta, finish_reason: null }] });
      await sleep(this.delay);
    }
    send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
    send({ choices: [], usage: { prompt_tokens: 100, completion_tokens: this.played.length }, timings: { predicted_per_second: 50, prompt_ms: 20 } });
    answer.end('data: [DONE]\n\n');
  }

  async forward(request, body, answer, isSlow) {
    const { hostname, port } = this.target;
    const up = http.request({ hostname, port, method: request.method, path: request.url, headers: { ...request.headers, host: `${hostname}:${port}` } });
    answer.on('close', () => up.destroy());
    up.on('error', () => answer.destroy());
    up.end(body);
    const down = await new Promise((yes) => up.on('response', yes));
    answer.writeHead(down.statusCode, down.headers);
    if (!isSlow || !this.delay) return void down.pipe(answer);
    let rest = '';
    for await (const piece of down) {
      const events = (rest + piece).split('\n\n');
      rest = events.pop();
      for (const event of events) {
        if (answer.destroyed) return;
        answer.write(`${event}\n\n`);
        await sleep(this.delay);
      }
    }
    answer.end(rest);
  }
}
