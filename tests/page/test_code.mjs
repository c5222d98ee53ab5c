import './dom.mjs';
import { element } from './dom.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';

const { colourCode } = await import('../../page/code.js');

function show(code, language) {
  const box = element('code');
  box.append(...colourCode(code, language));
  return box;
}

// The spans in order, as "keyword:if number:1".
const kinds = (code, language) => show(code, language).all('span').map((s) => `${s.attributes.class.slice(5)}:${s.textContent}`);

test('keywords, strings, comments, numbers and calls', () => {
  assert.deepEqual(kinds('if (x > 0x1F) { f("a\\"b", \'c\'); } // end "no" if', 'c'), ['keyword:if', 'number:0x1F', 'call:f', 'string:"a\\"b"', "string:'c'", 'comment:// end "no" if']);
  assert.deepEqual(kinds('def f(x): # no "string"\n    return """a\n# b""" + 1.5e3', 'python'), ['keyword:def', 'call:f', 'comment:# no "string"', 'keyword:return', 'string:"""a\n# b"""', 'number:1.5e3']);
  assert.deepEqual(kinds('const a = `x\n${b}`; /* if\n*/ await c', 'js'), ['keyword:const', 'string:`x\n${b}`', 'comment:/* if\n*/', 'keyword:await']);
  assert.deepEqual(kinds("fn f<'a>(x: &'a str) -> char { 'b' }", 'rust').filter((k) => !k.startsWith('keyword')), ["string:'b'"]);
  assert.deepEqual(kinds("SELECT a FROM t -- all\nWHERE b = 'x''y'", 'sql'), ['keyword:SELECT', 'keyword:FROM', 'comment:-- all', 'keyword:WHERE', "string:'x'", "string:'y'"]);
  assert.deepEqual(kinds('echo "$a#b" c#d # e', 'bash'), ['keyword:echo', 'string:"$a#b"', 'comment:# e']);
  assert.deepEqual(kinds('{"a": [1, true, -2.5]}', 'json'), ['string:"a"', 'number:1', 'keyword:true', 'number:2.5']);
  assert.deepEqual(kinds('<p class="x">if</p><!-- y -->', 'html'), ['keyword:<p', 'string:"x"', 'keyword:>', 'keyword:</p', 'keyword:>', 'comment:<!-- y -->']);
  assert.deepEqual(kinds('-old\n+new\n same - one', 'diff'), ['removed:-old', 'string:+new']);
});

test('names of languages as people write them', () => {
  for (const name of ['Python', 'py', 'JavaScript', 'C++', 'c#', 'TypeScript', 'sh', 'YAML', 'Rust', 'go', 'kotlin', 'swift', 'php', 'ruby', 'java', 'lua', 'toml', 'zig']) assert.ok(kinds('x = 1', name).length > 0, name);
});

test('a language that is not known, and a very long code, have no colours', () => {
  for (const name of ['', 'text', 'constructor', '__proto__', 'brainfuck']) assert.deepEqual(kinds('if (1) "a"', name), [], name);
  assert.deepEqual(kinds('1 '.repeat(25001), 'c'), []);
});

test('the code stays as it is, also while it grows, in every language', () => {
  const samples = 'int main(void) { return "a\\n\'b\' `c` /* d */ // e\\n#f -- g ; h <i j=\'k\'> %l """m""" r#"n"# \'o }\n\n$ p\n-q\n+r {- s --[[ t \\';
  for (const name of ['c', 'js', 'python', 'rust', 'bash', 'console', 'sql', 'lua', 'haskell', 'lisp', 'tex', 'html', 'diff', 'yaml', 'json', 'css', 'go', 'php', 'zig', 'perl', 'julia', 'elixir', 'r', 'swift']) {
    for (let n = 0; n <= samples.length; n++) assert.equal(show(samples.slice(0, n), name).textContent, samples.slice(0, n), name);
  }
});

test('code that means to be long to read is not', () => {
  const begun = performance.now();
  for (const name of ['c', 'js', 'python', 'rust', 'bash', 'html', 'lua', 'console', 'yaml']) for (const part of ['"', "'", '/*', '"""', '`', '#', '<', '\\', 'r#', 'a'.repeat(99), '=  ', '1e']) show(part.repeat(45000 / part.length), name);
  assert.ok(performance.now() - begun < 20000, `${performance.now() - begun} ms`);
});

test('tags in code are text', () => {
  assert.equal(show('<script>alert("1")</script>', 'html').all('script').length, 0);
});
