// Coding agents: how each is started against a server without an operator and without other hosts, and how it names its tools.
import fs from 'node:fs';
import path from 'node:path';

const write = (file, value) => {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value));
};

// The file that the steps make, as it is at first and after the edit.
const FIRST = 'the "word" is\npelican – done\n';
const OLD = 'pelican –', NEW = 'pelicans –';
export const MADE = FIRST.replace(OLD, NEW);
const READ = 'pelicans – done', COMMAND = 'sleep 0.3; echo $((6 * 7))-', ANSWER = '42-';

// gives: a part of what the tool returns. sent: the arguments as the agent sends them back, if it changes them.
const call = (name, args, gives, sent = args) => ({ name, arguments: args, gives, sent });

const patch = (...lines) => ({ input: ['*** Begin Patch', ...lines, '*** End Patch', ''].join('\n') });

// In each, start({ url, home, work, task }) returns the arguments and the environment. steps(work) returns the calls that the model writes.
export const programs = {
  // By this name of a model Codex edits files with a custom tool; by one that it does not know, in the shell.
  codex: {
    start: ({ url, task }) => ({
      args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '--json', '-m', 'gpt-5.5', '-c', 'model_provider="kin"',
        '-c', `model_providers.kin={name="kin", base_url="${url}/v1", wire_api="responses"}`, '-c', 'model_context_window=131072', '-c', 'analytics.enabled=false', task],
    }),
    steps: () => [
      call('exec_command', { cmd: 'cat notes.txt' }, 'pelican'),
      call('apply_patch', patch('*** Add File: made.txt', ...FIRST.trimEnd().split('\n').map((line) => `+${line}`)), 'A made.txt'),
      call('apply_patch', patch('*** Update File: made.txt', '@@', '-pelican – done', '+pelicans – done'), 'M made.txt'),
      call('exec_command', { cmd: COMMAND, yield_time_ms: 5000 }, ANSWER),
      call('exec_command', { cmd: 'cat made.txt' }, READ),
    ],
  },
  claude: {
    start: ({ url, task }) => ({
      args: ['-p', '--model', 'scripted', '--dangerously-skip-permissions', '--output-format', 'json', task],
      env: { ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: 'none', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_TELEMETRY: '1', DISABLE_ERROR_REPORTING: '1', DISABLE_AUTOUPDATER: '1',
        DISABLE_AUTO_COMPACT: '1', IS_SANDBOX: '1' },
    }),
    steps: (work) => {
      const file = (name) => path.join(work, name);
      const edit = { file_path: file('made.txt'), old_string: OLD, new_string: NEW };
      return [
        call('Read', { file_path: file('notes.txt') }, 'pelican'),
        call('Write', { file_path: file('made.txt'), content: FIRST }, 'made.txt'),
        call('Edit', edit, 'made.txt', { replace_all: false, ...edit }),
        call('Bash', { command: COMMAND, description: 'Computes' }, ANSWER),
        call('Read', { file_path: file('made.txt') }, READ),
      ];
    },
  },
  opencode: {
    start: ({ url, work, task }) => {
      write(path.join(work, 'opencode.json'), { $schema: 'https://opencode.ai/config.json', autoupdate: false, share: 'disabled', permission: 'allow',
        provider: { kin: { npm: '@ai-sdk/openai-compatible', name: 'kin', options: { baseURL: `${url}/v1`, apiKey: 'none' }, models: { scripted: { name: 'scripted', limit: { context: 131072, output: 4096 } } } } } });
      return { args: ['run', '--model', 'kin/scripted', '--format', 'json', task], env: { OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_LSP_DOWNLOAD: '1' } };
    },
    steps: (work) => {
      const file = (name) => path.join(work, name);
      return [
        call('read', { filePath: file('notes.txt') }, 'pelican'),
        call('write', { content: FIRST, filePath: file('made.txt') }, 'uccess'),
        call('edit', { filePath: file('made.txt'), oldString: OLD, newString: NEW }, 'uccess'),
        call('bash', { command: COMMAND, timeout: 20000 }, ANSWER),
        call('read', { filePath: file('made.txt') }, READ),
      ];
    },
  },
  qwen: {
    start: ({ url, home, task }) => {
      write(path.join(home, '.qwen', 'settings.json'), { privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false }, general: { enableAutoUpdate: false }, memory: { enableManagedAutoMemory: false } });
      return { args: ['--auth-type', 'openai', '-m', 'scripted', '--yolo', '-o', 'json', task], env: { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'none', OPENAI_MODEL: 'scripted' } };
    },
    steps: (work) => {
      const file = (name) => path.join(work, name);
      return [
        call('read_file', { file_path: file('notes.txt') }, 'pelican'),
        call('write_file', { file_path: file('made.txt'), content: FIRST }, 'made.txt'),
        call('edit', { file_path: file('made.txt'), old_string: OLD, new_string: NEW }, 'made.txt'),
        call('run_shell_command', { command: COMMAND, is_background: false }, ANSWER),
        call('read_file', { file_path: file('made.txt') }, READ),
      ];
    },
  },
  cn: {
    start: ({ url, home, task }) => {
      const config = path.join(home, 'config.yaml');
      write(config, `name: kin\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: scripted\n    provider: openai\n    model: scripted\n    apiBase: ${url}/v1\n    apiKey: none\n    roles: [chat]\n    capabilities: [tool_use]\n    defaultCompletionOptions:\n      contextLength: 131072\n      maxTokens: 4096\n`);
      return { args: ['--config', config, '--auto', '-p', task], env: { CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_CLI_ENABLE_TELEMETRY: '0', CONTINUE_METRICS_ENABLED: '0', CONTINUE_ALLOW_ANONYMOUS_TELEMETRY: '0' } };
    },
    steps: (work) => {
      const file = (name) => path.join(work, name);
      return [
        call('Read', { filepath: file('notes.txt') }, 'pelican'),
        call('Write', { filepath: file('made.txt'), content: FIRST }, 'made.txt'),
        call('Read', { filepath: file('made.txt') }, 'pelican – done'),
        call('Edit', { file_path: file('made.txt'), old_string: OLD, new_string: NEW, replace_all: false }, 'made.txt'),
        call('Bash', { command: `cat made.txt; ${COMMAND}` }, READ),
      ];
    },
  },
  cline: {
    start: ({ url, home, task }) => ({
      before: ['auth', '-p', 'openai', '-k', 'none', '-m', 'scripted', '-b', `${url}/v1`],
      args: ['-P', 'openai', '-m', 'scripted', '--json', task],
      env: { CLINE_TELEMETRY_DISABLED: '1', TELEMETRY_DISABLED: '1', CLINE_DIR: path.join(home, '.cline') },
    }),
    steps: (work) => {
      const file = (name) => path.join(work, name);
      return [
        call('read_files', { files: [{ path: file('notes.txt') }] }, 'pelican'),
        call('editor', { path: file('made.txt'), new_text: FIRST }, 'made.txt'),
        call('editor', { path: file('made.txt'), old_text: OLD, new_text: NEW }, 'made.txt'),
        call('run_commands', { commands: [COMMAND, 'true "a, b" [c]'] }, ANSWER),
        call('read_files', { files: [{ path: file('made.txt'), start_line: 1, end_line: 2 }] }, READ),
      ];
    },
  },
};
