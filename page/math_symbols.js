// Tables of TeX's commands and the characters that they show.

const pairs = (text) => new Map(text.trim().split(/\s+/).reduce((all, word, i, words) => (i % 2 ? all : [...all, [word, words[i + 1]]]), []));
const names = (text) => new Set(text.trim().split(/\s+/));

// Shown like a variable, in italics.
export const LETTERS = pairs(`alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ varkappa ϰ
  lambda λ mu μ nu ν xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
  digamma ϝ ell ℓ imath ı jmath ȷ wp ℘ aleph ℵ beth ℶ gimel ℷ`);
// Shown upright.
export const SIGNS = pairs(`Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω hbar ℏ hslash ℏ Re ℜ Im ℑ
  partial ∂ infty ∞ emptyset ∅ varnothing ∅ top ⊤ bot ⊥ angle ∠ measuredangle ∡ degree ° prime ′ backprime ‵ dots … ldots … cdots ⋯
  vdots ⋮ ddots ⋱ dotsc … dotsb ⋯ dotsm ⋯ checkmark ✓ square □ Box □ blacksquare ■ triangle △ Diamond ◊ lozenge ◊ bigstar ★ clubsuit ♣
  diamondsuit ♢ heartsuit ♡ spadesuit ♠ flat ♭ natural ♮ sharp ♯ S § P ¶ copyright © pounds £ euro € mho ℧ % % # # & & $ $ _ _
  nabla ∇ forall ∀ exists ∃ nexists ∄ complement ∁ therefore ∴ because ∵ QED ∎`);
// Operators: MathML defines the space around each.
export const OPERATORS = pairs(`pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ star ⋆ circ ∘ bullet • oplus ⊕ ominus ⊖ otimes ⊗ oslash ⊘ odot ⊙
  cap ∩ cup ∪ sqcap ⊓ sqcup ⊔ uplus ⊎ wedge ∧ land ∧ vee ∨ lor ∨ setminus ∖ smallsetminus ∖ wr ≀ amalg ⨿ dagger † ddagger ‡ ltimes ⋉
  rtimes ⋊ bowtie ⋈ le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ ll ≪ gg ≫ lll ⋘ ggg ⋙ approx ≈ approxeq ≊ equiv ≡ cong ≅
  sim ∼ simeq ≃ propto ∝ varpropto ∝ asymp ≍ doteq ≐ coloneqq ≔ eqqcolon ≕ in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇
  subsetneq ⊊ supsetneq ⊋ nsubseteq ⊈ sqsubseteq ⊑ sqsupseteq ⊒ perp ⊥ parallel ∥ nparallel ∦ mid ∣ nmid ∤ vdash ⊢ dashv ⊣ models ⊨
  vDash ⊨ Vdash ⊩ prec ≺ succ ≻ preceq ⪯ succeq ⪰ lesssim ≲ gtrsim ≳ triangleq ≜ trianglelefteq ⊴ triangleleft ◁ triangleright ▷
  lnot ¬ neg ¬ to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ implies ⟹ Leftarrow ⇐ impliedby ⟸ Leftrightarrow ⇔
  iff ⟺ longrightarrow ⟶ longleftarrow ⟵ longleftrightarrow ⟷ Longrightarrow ⟹ Longleftarrow ⟸ Longleftrightarrow ⟺ mapsto ↦
  longmapsto ⟼ hookrightarrow ↪ hookleftarrow ↩ uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑ Downarrow ⇓ nearrow ↗ searrow ↘
  swarrow ↙ nwarrow ↖ rightharpoonup ⇀ leftharpoonup ↼ rightleftharpoons ⇌ leadsto ⇝ rightsquigarrow ⇝ twoheadrightarrow ↠
  nrightarrow ↛ colon : mathcolon : lt < gt >`);
// Large operators: in displays the limits are above and below, but beside integrals.
export const LARGE = pairs(`sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigsqcup ⨆ biguplus ⨄ bigoplus ⨁ bigotimes ⨂ bigodot ⨀ bigvee ⋁ bigwedge ⋀`);
export const INTEGRALS = pairs(`int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯ oiiint ∰ smallint ∫`);
export const FUNCTIONS = names(`sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc exp log ln lg deg dim hom ker arg`);
export const LIMITS = names(`lim max min sup inf det gcd lcm Pr limsup liminf argmax argmin injlim projlim`);
export const FENCES = pairs(`{ { } } lbrace { rbrace } langle ⟨ rangle ⟩ lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ | ‖ Vert ‖ lVert ‖ rVert ‖ vert |
  lvert | rvert | lbrack [ rbrack ] backslash \\ lgroup ⟮ rgroup ⟯ ulcorner ⌜ urcorner ⌝ llbracket ⟦ rrbracket ⟧`);
export const SPACES = pairs(`, 0.1667em : 0.2222em > 0.2222em ; 0.2778em ! -0.1667em quad 1em qquad 2em enspace 0.5em thinspace 0.1667em
  medspace 0.2222em thickspace 0.2778em negthinspace -0.1667em`);
export const ACCENTS = pairs(`hat ^ widehat ^ bar ¯ vec → overrightarrow → overleftarrow ← overleftrightarrow ↔ dot ˙ ddot ¨ dddot ⃛
  tilde ~ widetilde ~ check ˇ breve ˘ acute ´ grave \` mathring ˚ overbrace ⏞ overparen ⏜`);
export const UNDER = pairs(`underbrace ⏟ underparen ⏝ underrightarrow → underleftarrow ←`);
export const WIDE = names(`widehat overrightarrow overleftarrow overleftrightarrow widetilde overbrace overparen`);
export const ARROWS = pairs(`xrightarrow → xleftarrow ← xleftrightarrow ↔ xRightarrow ⇒ xLeftarrow ⇐ xmapsto ↦ xlongequal =`);
export const NOT = pairs(`= ≠ < ≮ > ≯ ∈ ∉ ∋ ∌ ⊂ ⊄ ⊃ ⊅ ⊆ ⊈ ⊇ ⊉ ≡ ≢ ∼ ≁ ≈ ≉ ≅ ≇ ≤ ≰ ≥ ≱ ∃ ∄ ∣ ∤ ∥ ∦ → ↛ ← ↚ ⇒ ⇏ ⊢ ⊬ ⊨ ⊭`);
export const SIZES = pairs(`big 1.2em Big 1.8em bigg 2.4em Bigg 3em`);
export const STYLES = pairs(`displaystyle true textstyle false scriptstyle false scriptscriptstyle false`);
export const TEXTS = names(`text textrm textnormal textsf texttt textbf textit emph mbox hbox textup operatorname`);
export const NOTHING = names(`nonumber notag allowbreak nobreak relax limits nolimits left. right. displaylimits mathstrut strut`);
export const FONTS = { mathbf: 'bold', boldsymbol: 'bold', bm: 'bold', pmb: 'bold', mathbb: 'double', Bbb: 'double', mathcal: 'script', mathscr: 'script', mathfrak: 'fraktur', mathsf: 'sans', mathtt: 'mono',
  mathrm: 'upright', mathit: 'italic', mathnormal: 'italic', mathup: 'upright' };
// Environments: their fences, and the alignment of their columns.
export const TABLES = { matrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'], Vmatrix: ['‖', '‖'], smallmatrix: ['', ''], cases: ['{', '', 'l'], dcases: ['{', '', 'l'],
  rcases: ['', '}', 'l'], array: ['', ''], aligned: ['', '', 'rl'], align: ['', '', 'rl'], alignat: ['', '', 'rl'], alignedat: ['', '', 'rl'], split: ['', '', 'rl'], eqnarray: ['', '', 'rcl'], gathered: ['', ''], gather: ['', ''],
  multline: ['', ''], equation: ['', ''], displaymath: ['', ''], math: ['', ''], subequations: ['', ''] };
// ---- mathematical alphabets: code points of A, a and 0, and exceptions that Unicode has elsewhere

const ALPHABETS = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce], double: [0x1d538, 0x1d552, 0x1d7d8, { C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' }], sans: [0x1d5a0, 0x1d5ba, 0x1d7e2], mono: [0x1d670, 0x1d68a, 0x1d7f6],
  script: [0x1d49c, 0x1d4b6, 0, { B: 'ℬ', E: 'ℰ', F: 'ℱ', H: 'ℋ', I: 'ℐ', L: 'ℒ', M: 'ℳ', R: 'ℛ', e: 'ℯ', g: 'ℊ', o: 'ℴ' }],
  fraktur: [0x1d504, 0x1d51e, 0, { C: 'ℭ', H: 'ℌ', I: 'ℑ', R: 'ℜ', Z: 'ℨ' }], italic: [0x1d434, 0x1d44e, 0, { h: 'ℎ' }],
};
const GREEK_BOLD = [['Α', 'Ω', 0x1d6a8], ['α', 'ω', 0x1d6c2]];

/** Converts text to bold, script, … letters, as far as they exist. */
export function inFont(text, font) {
  const [upper, lower, digit, others = {}] = ALPHABETS[font] ?? [];
  if (!upper) return text;
  return [...text].map((c) => {
    const shift = (from, to) => String.fromCodePoint(to + c.codePointAt(0) - from.codePointAt(0));
    if (others[c]) return others[c];
    if (/[A-Z]/.test(c)) return shift('A', upper);
    if (/[a-z]/.test(c)) return shift('a', lower);
    if (/[0-9]/.test(c) && digit) return shift('0', digit);
    const greek = font === 'bold' && GREEK_BOLD.find(([from, to]) => c >= from && c <= to);
    return greek ? shift(greek[0], greek[2]) : c;
  }).join('');
}
