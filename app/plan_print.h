// Prints a plan (observe/plan_view.h) as a table and sentences. Stateless functions.
#pragma once

#include <stdio.h>

#include "observe/plan_view.h"

void kin_plan_print(const kin_plan_view *view, FILE *file);

// Prints the non-empty sentences after an empty line.
void kin_plan_print_sentences(const kin_facts *facts, const char sentences[][KIN_PLAN_EXPLAIN_MAX], FILE *file);

// Formats a time: "12.3 ms", "1.39 s".
enum { KIN_PLAN_PRINT_TIME = 24 };
const char *kin_plan_print_time(double seconds, char buf[KIN_PLAN_PRINT_TIME]);
