#include "app/manual.h"

#include <stdio.h>
#include <string.h>

// ---- help

static const char overview_end[] =
    "'kin help COMMAND' explains a command. Without -m the built-in demo model is used: kin run -p \"Once upon a time\"";
static const char forms_line[] =
    "'kin help --man' prints the manual page, '--bash' and '--zsh' completions of commands and options.";
static const char environment[] =
    "Every option can be set in the environment (--gpu-layers as KIN_GPU_LAYERS) and in a file (kin config). Sizes take K, M, G.";
static const char verbosity[] = "KIN_VERBOSE=1 prints more messages on stderr.";

void kin_manual_overview(void) {
    printf("kin %s: one large language model across the devices of a home\n\n", KIN_VERSION);
    for (int i = 0; kin_commands[i]; i++) printf("  kin %-7s %s\n", kin_commands[i]->name, kin_commands[i]->summary);
    printf("\n%s\n%s\n", overview_end, forms_line);
}

static void print_options(kin_option_tables tables, void *user) {
    (void)user;
    kin_options_help(tables);
}

void kin_manual_command(const kin_command *c) {
    printf("kin %s %s\n%s\n", c->name, c->args, c->summary);
    if (c->help) printf("\n%s\n", c->help);
    printf("\n");
    c->options(print_options, NULL);
    printf("\n%s\n%s\n", environment, verbosity);
}

// ---- all options of some tables, one by one

typedef struct walk {
    void (*visit)(const kin_option *option, void *user); // including KIN_OPTION_NEEDS
    void *user;
} walk;

static void walk_tables(kin_option_tables tables, void *user) {
    const walk *w = user;
    for (int t = 0; t < KIN_MAX_TABLES && tables[t]; t++) {
        for (const kin_option *o = tables[t]; o->kind != KIN_OPTION_END; o++) w->visit(o, w->user);
    }
}

static void each_option(const kin_command *c, void (*visit)(const kin_option *option, void *user), void *user) {
    walk w = {visit, user};
    c->options(walk_tables, &w);
}

// False for a row that opens a group, and for the older name of an option.
static bool is_option(const kin_option *o) {
    return o->help;
}

static bool names_file(const kin_option *o) {
    return o->arg && (strstr(o->arg, "FILE") || strcmp(o->arg, "FACTS") == 0);
}

// ---- the manual page

// Escapes text for roff: hyphens can be copied, and no line is taken for a request.
static void put_roff(const char *text) {
    bool at_start = true;
    for (; *text; text++) {
        if (at_start && (*text == '.' || *text == '\'')) printf("\\&");
        if (*text == '-')
            printf("\\-");
        else if (*text == '\\')
            printf("\\e");
        else
            putchar(*text);
        at_start = *text == '\n';
    }
}

static void put_roff_option(const kin_option *o, void *user) {
    (void)user;
    if (o->kind == KIN_OPTION_NEEDS) {
        printf(".P\nWith \\fB\\-\\-%s\\fR:\n", o->name);
        return;
    }
    if (!is_option(o)) return;
    printf(".TP\n");
    if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
    printf("\\fB\\-\\-");
    put_roff(o->name);
    printf("\\fR");
    if (o->arg) {
        printf(" \\fI");
        put_roff(o->arg);
        printf("\\fR");
    }
    printf("\n");
    put_roff(o->help);
    printf("\n");
}

static void put_roff_command(const kin_command *c) {
    printf(".SS kin %s ", c->name);
    put_roff(c->args);
    printf("\n");
    put_roff(c->summary);
    printf(".\n");
    if (c->help) {
        printf(".P\n");
        put_roff(c->help);
        printf("\n");
    }
    each_option(c, put_roff_option, NULL);
}

static void print_man(void) {
    printf(".TH KIN 1 \"\" \"kin %s\" \"User Commands\"\n"
           ".SH NAME\nkin \\- one large language model across the devices of a home\n"
           ".SH SYNOPSIS\n.B kin\n.I COMMAND\n[\\fIOPTION\\fR ...]\n.br\n.B kin\n.I MODEL.gguf\n[\\fIOPTION\\fR ...]\n"
           ".SH DESCRIPTION\n",
           KIN_VERSION);
    put_roff(
        "kin runs one model on one machine, or on several that form a ring, each with a share of the layers that suits it, even\n"
        "when the model is larger than their memory together. Output goes to stdout, messages to stderr. A model file\n"
        "or options without a command are passed to kin run. Without a model the built-in demo model is used.\n");
    printf(".SH COMMANDS\n");
    for (int i = 0; kin_commands[i]; i++) put_roff_command(kin_commands[i]);
    printf(".SH ENVIRONMENT\n");
    put_roff(environment);
    printf("\n");
    put_roff(verbosity);
    printf("\n.SH FILES\n.TP\n.I ~/.cache/kin\n");
    put_roff("Prepacked weights, fetched weights, profiles of this machine, and the on-disk KV cache.");
    printf("\n.TP\n.I ~/.config/kin\n");
    put_roff("The cluster key, the identity of this machine, and the certificate of kin serve --https.");
    printf("\n.TP\n.I ~/.config/kin/kin.conf\n");
    put_roff(
        "Settings: lines NAME = VALUE for options of all commands, and below a line [COMMAND] for those of one (kin config).");
    printf("\n.SH EXIT STATUS\n");
    put_roff("0, 1 (failed), 2 (wrong usage) or 130 (interrupted).");
    printf("\n.SH EXAMPLES\n.nf\n");
    put_roff("kin run -m model.gguf -p \"The sea is\" -n 100\n"
             "echo \"The sea is\" | kin run -m model.gguf -f -\n"
             "kin run --cluster -m model.gguf -p \"The sea is\"     # on the machine with the model\n"
             "kin join                                            # on each other one\n");
    printf(".fi\n");
}

// ---- completions

static void put_word(const kin_option *o, void *user) {
    (void)user;
    if (!is_option(o)) return;
    printf(" --%s", o->name);
    if (o->letter) printf(" -%c", o->letter);
}

// Prints the literal words in "f16|q8_0", without placeholders such as "N".
static void put_choices(const char *arg) {
    bool first = true;
    for (const char *at = arg; *at;) {
        size_t n = strcspn(at, "|");
        bool is_word = *at >= 'a' && *at <= 'z';
        if (is_word) printf("%s%.*s", first ? "" : " ", (int)n, at);
        first &= !is_word;
        at += n + (at[n] == '|');
    }
}

static bool has_choices(const kin_option *o) {
    return o->arg && strchr(o->arg, '|');
}

static void put_bash_value(const kin_option *o, void *user) {
    const char *command = user;
    if (!is_option(o) || o->kind == KIN_OPTION_FLAG) return;
    printf("    '%s --%s'", command, o->name);
    if (o->letter) printf(" | '%s -%c'", command, o->letter);
    if (has_choices(o)) {
        printf(") COMPREPLY=($(compgen -W '");
        put_choices(o->arg);
        printf("' -- \"$cur\")) && return ;;\n");
    } else {
        printf(") %sreturn ;;\n", names_file(o) || strcmp(o->arg, "DIR") == 0 ? "" : "compopt +o default 2>/dev/null; ");
    }
}

static void print_bash(void) {
    printf("# bash completion of kin %s\n"
           "_kin() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
           "  COMPREPLY=()\n"
           "  if [ \"$COMP_CWORD\" -eq 1 ] || [ \"$COMP_CWORD $command\" = '2 help' ]; then\n"
           "    COMPREPLY=($(compgen -W 'help",
           KIN_VERSION);
    for (int i = 0; kin_commands[i]; i++) printf(" %s", kin_commands[i]->name);
    printf("' -- \"$cur\"))\n    return\n  fi\n"
           "  case \"$command ${COMP_WORDS[COMP_CWORD - 1]}\" in\n");
    for (int i = 0; kin_commands[i]; i++) each_option(kin_commands[i], put_bash_value, (void *)kin_commands[i]->name);
    printf("  esac\n  case $command in\n");
    for (int i = 0; kin_commands[i]; i++) {
        printf("    %s) words='--help", kin_commands[i]->name);
        each_option(kin_commands[i], put_word, NULL);
        printf("' operands='%s' ;;\n", kin_commands[i]->operands ? kin_commands[i]->operands : "");
    }
    printf("  esac\n"
           "  case $cur in\n"
           "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
           "    *) [ -z \"$operands\" ] || COMPREPLY=($(compgen -W \"$operands\" -- \"$cur\")) ;;\n"
           "  esac\n"
           "}\n"
           "complete -o default -F _kin kin\n");
}

// Escapes text for a specification of _arguments, in single quotes.
static void put_zsh(const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) putchar('\\');
        if (*text == '\'')
            printf("'\\''");
        else
            putchar(*text);
    }
}

static void put_zsh_option(const kin_option *o, void *user) {
    (void)user;
    if (!is_option(o)) return;
    if (o->letter)
        printf(" \\\n        '(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter, o->name);
    else
        printf(" \\\n        '--%s[", o->name);
    put_zsh(o->help);
    printf("]");
    if (o->kind != KIN_OPTION_FLAG) {
        printf(":");
        put_zsh(o->arg);
        if (has_choices(o)) {
            printf(":(");
            put_choices(o->arg);
            printf(")");
        } else {
            printf("%s", names_file(o) ? ":_files" : strcmp(o->arg, "DIR") == 0 ? ":_files -/" : ": ");
        }
    }
    printf("'");
}

static void print_zsh(void) {
    printf("#compdef kin\n"
           "# zsh completion of kin %s\n"
           "_kin() {\n"
           "  local -a commands\n"
           "  commands=(\n    'help:explain a command'\n",
           KIN_VERSION);
    for (int i = 0; kin_commands[i]; i++) {
        printf("    '%s:", kin_commands[i]->name);
        put_zsh(kin_commands[i]->summary);
        printf("'\n");
    }
    printf("  )\n"
           "  if (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
           "    _describe -t commands command commands\n"
           "    (( CURRENT > 2 )) || _files -g '*.gguf'\n"
           "    return\n"
           "  fi\n"
           "  shift words\n"
           "  (( CURRENT-- ))\n"
           "  case $words[1] in\n");
    for (int i = 0; kin_commands[i]; i++) {
        const char *operands = kin_commands[i]->operands;
        printf("    %s)\n      _arguments '--help[explain the command]'", kin_commands[i]->name);
        each_option(kin_commands[i], put_zsh_option, NULL);
        if (operands)
            printf(" '*: :(%s)'\n      ;;\n", operands);
        else
            printf(" '*:file:_files'\n      ;;\n");
    }
    printf("  esac\n}\n_kin \"$@\"\n");
}

int kin_manual_print(const char *word) {
    static const struct {
        const char *word;
        void (*print)(void);
    } forms[] = {{"--man", print_man}, {"--bash", print_bash}, {"--zsh", print_zsh}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(forms[i].word, word) != 0) continue;
        forms[i].print();
        return 0;
    }
    return KIN_FAIL;
}
