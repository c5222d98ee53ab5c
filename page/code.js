// Syntax colouring: one tokenizer with tables of each language's comments, strings and keywords. The result is text nodes and spans that
// together are the unchanged code. Unknown languages are not coloured.

import { h } from './dom.js';

const MAX_CODE = 50000; // characters; longer code is not coloured

// ---- comments and strings; an unclosed one extends to the end of the line or of the code

const LINE = /\/\/[^\n]*/, BLOCK = /\/\*[^]*?(?:\*\/|$)/, HASH = /#[^\n]*/, DASHES = /--[^\n]*/, SEMICOLON = /;[^\n]*/, PERCENT = /%[^\n]*/;
const DOUBLE = /"(?:\\[^]|[^"\\\n])*"?/, SINGLE = /'(?:\\[^]|[^'\\\n])*'?/, BACK = /`(?:\\[^]|[^`\\])*(?:`|$)/, TRIPLE = /"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)/;
const LINES = /"(?:\\[^]|[^"\\])*(?:"|$)/, CHARACTER = /'(?:\\[^\n']+|[^\n'\\])'/, OVER_LINES = /"(?:\\[^]|[^"\\])*(?:"|$)|'[^']*(?:'|$)/, RAW = /r(?<hashes>#*)"[^]*?(?:"\k<hashes>|$)/;

// ---- keywords

const C = 'auto break case char const continue default do double else enum extern float for goto if inline int long register return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL restrict _Static_assert static_assert';
const CPP = `${C} class namespace template typename public private protected virtual override final new delete this try catch throw using constexpr consteval nullptr operator friend explicit noexcept concept requires co_await co_return co_yield mutable`;
const JS = 'async await break case catch class const continue debugger default delete do else export extends false finally for from function get if import in instanceof let new null of return set static super switch this throw true try typeof undefined var void while yield';
const TS = `${JS} abstract any as boolean declare enum implements infer interface is keyof namespace never number private protected public readonly satisfies string type unknown`;
const JAVA = 'abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws transient true try var void volatile while yield';
const CSHARP = `${JAVA} as async await base bool decimal delegate event foreach get in internal is lock namespace object out override params readonly ref sbyte set sizeof string struct uint ulong using virtual where`;
const GO = 'break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var true false nil string int int64 uint8 byte rune bool error float64 any make len append';
const RUST = 'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 bool str String Vec Option Result Some None Ok Err';
const PYTHON = 'and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield';
const SHELL = 'if then else elif fi for while until do done case esac in function return local export readonly set unset shift exit echo cd test source sudo';
const SQL = 'select from where and or not in is null insert into values update set delete create table view index drop alter add column primary key foreign references unique join left right inner outer full cross on as group by order having limit offset union all distinct case when then else end exists between like with returning begin commit rollback default constraint cascade int integer text varchar boolean timestamp date asc desc count sum avg min max coalesce';
const RUBY = 'alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor puts';
const SWIFT = 'actor as associatedtype async await break case catch class continue default defer do else enum extension fallthrough false for func guard if import in init inout internal is let mutating nil open operator override private protocol public repeat return self Self some static struct subscript super switch throw throws true try typealias var where while';
const KOTLIN = 'abstract as break by class companion const continue data do else enum false final for fun if import in init inline interface internal is lateinit null object open override package private protected public return sealed super suspend this throw true try typealias val var vararg when where while';
const PHP = `${JAVA} array as callable clone echo elseif empty endforeach endif fn foreach function global include isset match namespace php print require trait unset use`;
const LUA = 'and break do else elseif end false for function goto if in local nil not or repeat return then true until while';
const HASKELL = 'case class data deriving do else forall if import in infix infixl infixr instance let module newtype of qualified then type where';
const R = 'break else FALSE for function if in Inf library NA NaN next NULL repeat return TRUE while';
const LISP = 'def defn defun defmacro defvar let lambda fn if cond do loop recur quote set setq progn require ns nil true false';

// Rows: names, [comments and strings, keywords, further tokens].
const TABLE = [
  ['c h', [[LINE, BLOCK, DOUBLE, SINGLE], C]],
  ['cpp c++ cc cxx hpp cuda cu objc objective-c arduino', [[LINE, BLOCK, DOUBLE, SINGLE], CPP]],
  ['js javascript jsx mjs cjs node', [[LINE, BLOCK, BACK, DOUBLE, SINGLE], JS]],
  ['ts typescript tsx', [[LINE, BLOCK, BACK, DOUBLE, SINGLE], TS]],
  ['java groovy', [[LINE, BLOCK, TRIPLE, DOUBLE, SINGLE], JAVA]],
  ['cs csharp c#', [[LINE, BLOCK, DOUBLE, SINGLE], CSHARP]],
  ['go golang', [[LINE, BLOCK, BACK, DOUBLE, SINGLE], GO]],
  ['rust rs', [[LINE, BLOCK, RAW, LINES, CHARACTER], RUST]],
  ['swift', [[LINE, BLOCK, TRIPLE, DOUBLE], SWIFT]],
  ['kotlin kt kts scala dart', [[LINE, BLOCK, TRIPLE, DOUBLE, SINGLE], KOTLIN]],
  ['zig', [[LINE, DOUBLE, SINGLE], `${RUST} var comptime try catch defer errdefer orelse void anytype test switch error null undefined`]],
  ['php', [[LINE, BLOCK, HASH, DOUBLE, SINGLE], PHP]],
  ['python py python3 ipython', [[HASH, TRIPLE, DOUBLE, SINGLE], PYTHON]],
  ['ruby rb', [[HASH, DOUBLE, SINGLE], RUBY]],
  ['sh bash zsh shell fish dockerfile docker makefile make', [[/(?<![^\s;])#[^\n]*/, OVER_LINES], SHELL]],
  ['console shell-session', [[/(?<=^|\n)(?![$#>] )[^\n]+/, OVER_LINES], SHELL]],
  ['perl pl', [[HASH, DOUBLE, SINGLE], `${RUBY} my our sub use foreach die print`]],
  ['r', [[HASH, DOUBLE, SINGLE], R]],
  ['julia jl', [[HASH, TRIPLE, DOUBLE, CHARACTER], `${RUBY} function struct mutable using export const let try catch finally where nothing`]],
  ['elixir ex exs', [[HASH, TRIPLE, DOUBLE], `${RUBY} defmodule defp fn use import quote receive`]],
  ['yaml yml toml ini cfg conf properties env nix cmake', [[/(?<![^\s])[#;][^\n]*/, DOUBLE, SINGLE], 'true false null yes no on off']],
  ['json jsonc json5 jsonl', [[LINE, BLOCK, DOUBLE], 'true false null']],
  ['css scss less', [[BLOCK, DOUBLE, SINGLE], 'important media import supports keyframes font-face root hover focus var calc auto none']],
  ['sql mysql postgresql postgres sqlite psql', [[DASHES, BLOCK, SINGLE, DOUBLE], SQL]],
  ['lua', [[/--\[\[[^]*?(?:\]\]|$)/, DASHES, DOUBLE, SINGLE], LUA]],
  ['haskell hs elm', [[/\{-[^]*?(?:-\}|$)/, DASHES, DOUBLE, CHARACTER], HASKELL]],
  ['lisp clojure clj scheme elisp', [[SEMICOLON, LINES], LISP]],
  ['tex latex matlab erlang prolog', [[PERCENT, DOUBLE], 'begin end function for if else elseif while switch case otherwise return']],
  ['diff patch', [[/(?<=^|\n)\+[^\n]*/, /(?<=^|\n)-[^\n]*/, /(?<=^|\n)@@[^\n]*/], '']],
  ['html xml svg vue xhtml', [[/<!--[^]*?(?:-->|$)/, /(?<==\s*)(?:"[^"]*(?:"|$)|'[^']*(?:'|$))/], '', /<\/?[A-Za-z][\w:-]*|\/?>/]],
];

const LANGUAGES = new Map(TABLE.flatMap(([names, rules]) => names.split(' ').map((name) => [name, rules])));

// ---- tokenizing

const NUMBER = /\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/, WORD = /[A-Za-z_$][\w$]*/;
const source = (patterns) => patterns.map((p) => p.source).join('|');
const readers = new Map();

function readerOf(name) {
  if (!readers.has(name)) {
    const [marks, keywords, more = /(?!)/] = LANGUAGES.get(name);
    readers.set(name, { pattern: new RegExp(`(?<mark>${source(marks)})|(?<key>${more.source})|(?<number>${NUMBER.source})|(?<word>${WORD.source})`, 'g'), keywords: new Set(keywords.split(' ')), hasCalls: more.source === '(?!)', isFree: keywords === SQL });
  }
  return readers.get(name);
}

const MARKS = { '"': 'string', "'": 'string', '`': 'string', r: 'string', '+': 'string' }; // by first character; otherwise it is a comment

function kindOf({ mark, key, number, word }, reader, after) {
  if (mark) return mark[0] === '-' && mark[1] !== '-' ? 'removed' : (MARKS[mark[0]] ?? 'comment');
  if (key) return 'keyword';
  if (number) return 'number';
  if (reader.keywords.has(reader.isFree ? word.toLowerCase() : word)) return 'keyword';
  return reader.hasCalls && after === '(' ? 'call' : null;
}

/** Returns the coloured code as nodes and strings. */
export function colourCode(code, language) {
  const name = language.toLowerCase();
  if (!LANGUAGES.has(name) || code.length > MAX_CODE) return [code];
  const reader = readerOf(name), out = [];
  let done = 0;
  for (const found of code.matchAll(reader.pattern)) {
    const kind = kindOf(found.groups, reader, code[found.index + found[0].length]);
    if (!kind) continue;
    if (found.index > done) out.push(code.slice(done, found.index));
    out.push(h('span', { class: `code-${kind}` }, found[0]));
    done = found.index + found[0].length;
  }
  return [...out, code.slice(done)].filter(Boolean);
}
