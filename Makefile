# Short aliases for CMake. `make demo` and `make test` are all that a new user needs.
BUILD ?= build
JOBS  ?= $(shell getconf _NPROCESSORS_ONLN)
# The places of tests run at once: one that computes takes two, one that mostly waits takes one (CMakeLists.txt).
TESTS ?= $(shell expr 2 '*' $(JOBS) + 4)

.PHONY: all everything setup demo test bench format demo-model clean

# The program and its manual page. `everything` also builds the tests and tools, which doubles the time.
all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS) --target kin kin_manual

everything: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS)

$(BUILD)/CMakeCache.txt:
	@cmake -S . -B $(BUILD) -G Ninja

setup:
	@tools/setup

demo: setup
	@$(MAKE) --no-print-directory all
	@$(BUILD)/kin demo

test:
	@tools/setup --test
	@$(MAKE) --no-print-directory everything
	@ctest --test-dir $(BUILD) --output-on-failure -j $(TESTS) -LE long

bench: everything
	@bench/compare.sh

format:
	@tools/check-format --fix

demo-model:
	@assets/demo/make.sh

clean:
	@rm -rf $(BUILD)
