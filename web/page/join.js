// The page /join: asks for a name and the code, shows this tab's work. Workers compute (socket.js, computer.js).
const $ = (id) => document.getElementById(id);
const KEPT = 'kin-join'; // survives a reload of this tab
const GIB = 2 ** 30, MOST_GIB = 3.5; // a module's memory is limited to 4 GiB
const SPEED_MS = 2000, AGAIN_MS = 2000, TRIES = 30;

const asked = ['on', 'off'].find((gpu) => new URLSearchParams(location.search).get('gpu') === gpu);

let worker, wakeLock, rates = null, gpu = asked ?? 'auto', steps = [], wasIn = false, tries = 0;

const bytes = (n) => (n >= GIB ? `${(n / GIB).toFixed(1)} GiB` : n >= 2 ** 20 ? `${Math.round(n / 2 ** 20)} MiB` : `${Math.round(n / 1024)} KiB`);

function browserName() {
  const known = [['Edg', 'Edge'], ['Firefox', 'Firefox'], ['Chrome', 'Chrome'], ['Version', 'Safari']];
  for (const [word, name] of known) {
    const version = navigator.userAgent.match(new RegExp(`${word}/(\\d+)`))?.[1];
    if (version) return `${name} ${version}`;
  }
  return 'a browser';
}

const deviceName = () => (/iPhone|iPad|Android|Windows|Macintosh|CrOS|Linux/.exec(navigator.userAgent)?.[0] ?? 'browser').replace('Macintosh', 'Mac');

function fillMemory() {
  const all = navigator.deviceMemory ?? 4, offered = [0.25, 0.5, 1, 2, 3, MOST_GIB].filter((n) => n <= Math.max(0.5, all / 2));
  $('memory').replaceChildren(...offered.map((n) => new Option(`${n} GiB`, n * GIB)));
  $('memory').value = String(Math.min(2, offered.at(-1)) * GIB);
}

function show(problem) {
  $('problem').textContent = problem ?? '';
  $('problem').hidden = !problem;
}

async function keepAwake() {
  try {
    wakeLock = await navigator.wakeLock?.request('screen');
  } catch { /* not allowed now: when the page is seen again */ }
}

function showSpeed() {
  const now = performance.now();
  steps = steps.filter((s) => now - s.at < SPEED_MS);
  const tokens = steps.reduce((sum, s) => sum + s.tokens, 0), ms = steps.reduce((sum, s) => sum + s.ms, 0);
  $('speed').textContent = tokens ? `${((tokens * 1000) / SPEED_MS).toFixed(1)} tokens/s, computing ${Math.min(100, Math.round((100 * ms) / SPEED_MS))} % of the time` : '0 tokens/s';
}

const says = {
  engine: (m) => {
    rates = m.rates;
    $('engine').textContent = m.gpu ? `on the GPU (${m.gpu})` : `WebAssembly (${m.unit}), ${m.threads} thread${m.threads > 1 ? 's' : ''}`;
  },
  welcome: (m) => {
    $('line').textContent = `Joined ${m.head}, which runs ${m.model}.`;
    wasIn = true;
    tries = 0;
    sessionStorage.setItem(KEPT, JSON.stringify(settings()));
    show(null);
  },
  status: (m) => ($('line').textContent = m.line),
  progress: (m) => {
    Object.assign($('progress'), { hidden: m.done >= m.total, value: m.done, max: m.total });
    $('fetched').textContent = bytes(m.fetched);
  },
  opened: (m) => {
    const own = m.windows.filter(([from, to]) => to > from).map(([from, to]) => (to - from > 1 ? `${from}–${to - 1}` : `${from}`));
    $('layers').textContent = own.length ? `${own.join(', ')} of ${m.layers}` : 'none: it only relays';
    $('layers').dataset.n = m.windows.reduce((n, [from, to]) => n + to - from, 0);
    $('fetched').textContent = bytes(m.fetched);
    Object.assign($('fetched').dataset, { bytes: m.fetched, ms: Math.round(m.ms) });
  },
  step: (m) => steps.push({ at: performance.now(), ...m }),
  ended: (m) => {
    if (m.gpu) [gpu, rates] = [m.gpu, null];
    if (m.lost && wasIn) again(m.reason);
    else stop(m.reason);
  },
};

const settings = () => ({ code: $('code').value, name: $('name').value, memory: Number($('memory').value), rates, gpu });

// Reconnects: the head was restarted, or the network was down.
function again(reason) {
  worker?.terminate();
  worker = null;
  if (tries++ >= TRIES) return stop(reason);
  $('line').textContent = `${reason} Trying again …`;
  setTimeout(() => $('form').hidden && join(), AGAIN_MS);
}

function stop(reason) {
  wasIn = false;
  worker?.terminate();
  worker = null;
  wakeLock?.release();
  $('form').hidden = false;
  $('state').hidden = true;
  sessionStorage.removeItem(KEPT);
  show(reason);
}

function join() {
  const query = new URLSearchParams(location.search);
  show(null);
  $('form').hidden = true;
  $('state').hidden = false;
  $('layers').textContent = 'none yet';
  delete $('layers').dataset.n;
  $('line').textContent = rates ? 'Starting …' : 'Measuring the speed of this browser …';
  worker = new Worker(new URL('./socket.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }) => says[data.type]?.(data);
  worker.onerror = (e) => (wasIn ? again('The head does not answer.') : stop(e.message || 'This browser cannot run the page\'s workers.'));
  const own = settings();
  worker.postMessage({ type: 'join', ...own, cap: own.memory, browser: browserName(), threads: Number(query.get('threads')) || navigator.hardwareConcurrency || 1 });
  keepAwake();
}

// Applies the colour theme chosen on the page of kin serve.
function setTheme() {
  try {
    const theme = localStorage.getItem('kin.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the system's */ }
}

function begin() {
  setTheme();
  fillMemory();
  $('name').value = deviceName();
  try {
    $('code').value = decodeURIComponent(location.hash.slice(1)); // of a link: browsers do not send it
  } catch {
    $('code').value = ''; // invalid % encoding
  }
  $('form').hidden = !isSecureContext;
  if (!isSecureContext) return show('Browsers can join only from a secure page: open this page with https://, or on the serving machine itself.');
  $('form').onsubmit = (e) => (e.preventDefault(), join());
  $('leave').onclick = () => (worker ? worker.postMessage({ type: 'leave' }) : stop('This tab has left.'));
  document.onvisibilitychange = () => {
    if (document.hidden && worker) $('hidden-note').hidden = false;
    if (!document.hidden && worker) keepAwake();
  };
  setInterval(showSpeed, 1000);
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? 'null'); // set if this tab was reloaded
  if (!kept) return;
  $('code').value = kept.code;
  $('name').value = kept.name;
  rates = kept.rates;
  gpu = asked ?? kept.gpu;
  if (Number.isFinite(kept.memory)) $('memory').value = String(kept.memory);
  join();
}

begin();
