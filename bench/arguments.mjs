// The command line of the measurements in this folder: --NAME VALUE for each of the options, and words.
import process from 'node:process';

// Writes the values to options, as numbers where the defaults are, and returns the words. Without a word it prints the usage and ends.
export function readArguments(options, usage) {
  const words = [];
  for (let i = 2; i < process.argv.length; i++) {
    const word = process.argv[i], name = word.slice(2);
    if (!word.startsWith('--')) words.push(word);
    else options[name] = typeof options[name] === 'number' ? +process.argv[++i] : process.argv[++i];
  }
  if (words.length > 0) return words;
  console.error(`usage: node bench/${usage}`);
  return process.exit(2);
}
