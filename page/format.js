// Formats numbers for display.

const n1 = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const n0 = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const count = (n) => n0.format(n ?? 0);

/** Returns "12.3M" for numbers that would be too wide. */
export const shortCount = (n) => (n >= 1e6 ? short.format(n) : count(n));

export function bytes(n) {
  if (!(n > 0)) return '0 B';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${n >= 100 || i === 0 ? n0.format(n) : n1.format(n)} ${units[i]}`;
}

export function ms(t) {
  if (!(t >= 0)) return '';
  if (t >= 60000) return `${n0.format(t / 60000)} min`;
  if (t >= 1000) return `${n1.format(t / 1000)} s`;
  return t >= 10 ? `${n0.format(t)} ms` : `${t.toFixed(2)} ms`;
}

export const rate = (perSecond) => (perSecond >= 100 ? n0 : n1).format(perSecond);

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

export function ago(t) {
  const s = (Date.now() - t) / 1000;
  if (s < 86400 && new Date(t).getDate() === new Date().getDate()) return 'Today';
  if (s < 2 * 86400) return 'Yesterday';
  if (s < 7 * 86400) return 'This week';
  return 'Earlier';
}

export function uptime(s) {
  const d = Math.floor(s / 86400), hours = Math.floor((s % 86400) / 3600), min = Math.floor((s % 3600) / 60);
  return d ? `${d} d ${hours} h` : hours ? `${hours} h ${min} min` : min ? `${min} min` : `${Math.floor(s)} s`;
}

/** Returns " 43 %, 12 s left", as far as it is known. */
export function progress(percent, secondsLeft) {
  if (!(percent >= 0)) return '';
  return ` ${Math.floor(percent)} %${secondsLeft > 0 ? `, ${uptime(secondsLeft)} left` : ''}`;
}

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Returns "24.3 tokens/s · 148 tokens · prompt 0.4 s · 61 of 80 drafted tokens accepted · context 1,204 of 16,384". */
export function statsText(stats, nContext) {
  const parts = [];
  if (stats.rate > 0) parts.push(`${rate(stats.rate)} tokens/s`);
  if (stats.tokens) parts.push(plural(stats.tokens, 'token'));
  if (stats.first_ms >= 0) parts.push(`prompt ${ms(stats.first_ms)}`);
  if (stats.drafted) parts.push(`${count(stats.accepted)} of ${plural(stats.drafted, 'drafted token')} accepted`);
  if (stats.prompt) parts.push(`context ${count(stats.prompt + (stats.tokens ?? 0))}${nContext ? ` of ${count(nContext)}` : ''}`);
  if (stats.cached) parts.push(`${count(stats.cached)} cached`);
  return parts.join(' · ');
}
