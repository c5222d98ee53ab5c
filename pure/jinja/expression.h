// Parses expressions of a template, with the grammar of jinja2's parser. Each function begins at the current token and ends after
// the expression; it returns NULL after it has written the error. Thread: the parser's.
#pragma once

#include "pure/jinja/parser_state.h"

kin_node *kin_parse_expression(kin_parser *p);
kin_node *kin_parse_tuple(kin_parser *p, bool with_condition); // or an expression without a comma
kin_node *kin_parse_filters(kin_parser *p, kin_node *input);   // "| name(...) | ...", possibly none
kin_node *kin_parse_filter(kin_parser *p, kin_node *input);    // "name(...)", optionally followed by "| ..."
kin_node *kin_parse_target(kin_parser *p);                     // the target of an assignment
