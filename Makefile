# Sandbox for nginx: the front door.  `make help` lists the targets.
#
# NGX_SRC=DIR   headers of another nginx (default: Debian's nginx-dev)
# BUILD=DIR     where everything is built (default: build)

SHELL    := /bin/bash
BUILD    ?= build
NGX_SRC  ?= /usr/share/nginx/src
CACHE    ?= /var/cache/sandbox

# of `make base`, not empty: with the wheelhouse

WHEELHOUSE ?=
CC       ?= gcc

# of `make run`, `make demo`

PORT     ?= 8080
STATE    ?= run
CONF     ?=
BACKEND  ?= local
DAGGER   ?=
SEED     ?= 20250930
INPUT    ?=

override BUILD := $(abspath $(BUILD))

OBJS     := $(BUILD)/nginx
MODULE   := $(BUILD)/ngx_http_sandbox_module.so

WARN     := -Wall -Wextra -Werror -Wno-unused-parameter
OPT      ?= -O2 -g
HARDEN   := -fstack-protector-strong -D_FORTIFY_SOURCE=2
CFLAGS   := -std=gnu11 $(OPT) $(WARN) $(HARDEN) -Isrc/wire -Isrc/tar -Isrc/jose -MMD -MP
LDFLAGS  := -Wl,-z,relro -Wl,-z,now

STATIC   := -static

# SANITIZE=1: for suite system-asan; not for nginx, which has its own

ifeq ($(SANITIZE),1)
OPT      := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
            -fno-sanitize-recover=undefined
HARDEN   :=
STATIC   := -static-libasan -static-libubsan
LDFLAGS  += -fsanitize=address,undefined $(STATIC)
EXTRA    := $(BUILD)/obj/t/lib/sanitize.o
WRAP     := -Wl,--wrap=runner_words_read
endif

CC_OPT   ?= -g -O2 -fPIC -Wno-error=deprecated-declarations
LD_OPT   ?= -Wl,-z,relro -Wl,-z,now -fPIC

WIRE     := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/wire/*.c))
TAR      := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/tar/*.c))
JOSE     := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/jose/*.c))
AGENT    := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/agent/*.c))
RUNNER   := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/runner/*.c)) \
            $(BUILD)/obj/src/egress/egress_address.o
EGRESS   := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/egress/*.c)) \
            $(patsubst %,$(BUILD)/obj/src/runner/%.o,loop log file message words)
CTL      := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard src/ctl/*.c))


all: build-deps $(MODULE) $(BUILD)/sandbox-runner $(BUILD)/sandbox-egress \
     $(BUILD)/sandbox-agent $(BUILD)/sandboxctl

help:
	@sed -n 's/^#: //p' Makefile

#: make          module, runner, agent, sandboxctl into build/
#: make deps     root: install the Debian packages that are missing
#: make base     root: the base image, once for each recipe; WHEELHOUSE=1: with
#:               common Python packages as files, for "uv add" without network;
#:               and the same with the agent for container engines, as files
#:               that nginx serves (make registry)
#: make demo     root: all of it, then the spreadsheet job over HTTP
#: make run      root: gateway and runner on 127.0.0.1:PORT, Ctrl-C ends both;
#:               BACKEND=dagger DAGGER=tcp://HOST:PORT, also of demo: on an engine
#: make test     root: all suites; BACKEND=dagger: t/system on that backend
#: make check    style, analyzers, unit tests; no root
#: make bench    root: latency as ratios against a floor
#: make bench-bombs  root: what the worst commands cost others; five minutes
#: make install  root: into the system, or below DESTDIR for a package
#: make clean    remove build/


build-deps:
	@[ ! -e $(BUILD) ] || [ -w $(BUILD) ] \
	    || { echo "$(BUILD) can't be written, another user has built it:" \
	              "use another one (make BUILD=DIR), or run this as root." >&2; \
	         exit 1; }
	@tools/deps --check build

$(BUILD)/sandbox-agent: $(AGENT) $(TAR) $(WIRE) $(EXTRA)
	@$(CC) $(STATIC) $(LDFLAGS) -o $@ $^
	@echo "built $(@F)"

$(BUILD)/sandbox-runner: $(RUNNER) $(WIRE) $(EXTRA)
	@$(CC) $(LDFLAGS) $(WRAP) -o $@ $^ -ljansson -lnghttp2 -lpthread
	@echo "built $(@F)"

$(BUILD)/sandbox-egress: $(EGRESS) $(WIRE) $(EXTRA)
	@$(CC) $(LDFLAGS) $(WRAP) -o $@ $^ -lcares
	@echo "built $(@F)"

$(BUILD)/sandboxctl: $(CTL) $(JOSE) $(TAR) $(WIRE)
	@$(CC) $(LDFLAGS) -o $@ $^ -lcurl -ljansson -ljwt -lcrypto
	@echo "built $(@F)"

$(BUILD)/obj/t/lib/%.o: CFLAGS += -Isrc/runner
$(BUILD)/obj/src/egress/%.o: CFLAGS += -Isrc/runner
$(BUILD)/obj/src/runner/%.o: CFLAGS += -Isrc/egress

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) -c -o $@ $<

-include $(WIRE:.o=.d) $(TAR:.o=.d) $(JOSE:.o=.d) $(AGENT:.o=.d) $(RUNNER:.o=.d) $(EGRESS:.o=.d) $(CTL:.o=.d)


# A changed config, another nginx-dev or other flags force a new configure.

STAMP    := $(OBJS)/.stamp-$(shell (cat config $(NGX_SRC)/conf_flags \
              $(NGX_SRC)/src/core/nginx.h; echo '$(CC_OPT) $(LD_OPT)') \
              2>/dev/null | sha256sum | cut -c1-12)

$(MODULE): $(STAMP) FORCE
	+@$(MAKE) -s -f $(OBJS)/Makefile -C $(NGX_SRC) modules \
	    > $(OBJS)/make.log 2>&1 \
	    || { cat $(OBJS)/make.log; exit 1; }
	@cmp -s $(OBJS)/$(@F) $@ \
	    || { cp $(OBJS)/$(@F) $@.new && mv $@.new $@ && echo "built $(@F)"; }

$(STAMP):
	@rm -rf $(OBJS) && mkdir -p $(OBJS)
	@echo "configuring the module for nginx (once)"
	@cd $(NGX_SRC) && . ./conf_flags && ./configure \
	    --with-cc-opt='$(CC_OPT)' --with-ld-opt='$(LD_OPT)' \
	    "$${NGX_CONF_FLAGS[@]}" --add-dynamic-module=$(CURDIR) \
	    --builddir=$(OBJS) > $(OBJS)/configure.log 2>&1 \
	    || { tail -5 $(OBJS)/configure.log; exit 1; }
	@touch $@


deps:
	@tools/deps --install all

run-deps:
	@tools/deps --install run

base: registry

base-image: run-deps
	@base/build $(if $(WHEELHOUSE),--wheelhouse) --cache $(CACHE) > /dev/null

root:
	@[ "$$(id -u)" = 0 ] \
	    || { echo "This needs root, since the runner makes containers:" \
	              "run it in a root shell, or by sudo." >&2; \
	         exit 1; }

registry: run-deps
	@$(MAKE) --no-print-directory all base-image
	@tools/registry $(CACHE)/base/current/rootfs $(BUILD)/sandbox-agent \
	    $(CACHE)/registry

demo: root run-deps
	@$(MAKE) --no-print-directory all base-image
	@BUILD=$(BUILD) CACHE=$(CACHE) SEED='$(SEED)' INPUT='$(INPUT)' \
	    BACKEND='$(BACKEND)' DAGGER='$(DAGGER)' tools/demo

run: root run-deps
	@$(MAKE) --no-print-directory all base-image
	@BUILD=$(BUILD) CACHE=$(CACHE) PORT='$(PORT)' STATE='$(STATE)' \
	    CONF='$(CONF)' BACKEND='$(BACKEND)' DAGGER='$(DAGGER)' exec tools/run

test: root deps
	@$(MAKE) --no-print-directory -j3 all base-image
	@BUILD=$(BUILD) CACHE=$(CACHE) t/run $(filter dagger,$(BACKEND))

check: all
	@tools/style
	@tools/analyze $(BUILD)
	@tools/tidy $(BUILD)
	@BUILD=$(BUILD) t/run unit

bench: root deps
	@$(MAKE) --no-print-directory all base
	@BUILD=$(BUILD) CACHE=$(CACHE) bench/run
	@BUILD=$(BUILD) bench/auth
	@BUILD=$(BUILD) CACHE=$(CACHE) bench/files
	@BUILD=$(BUILD) CACHE=$(CACHE) bench/egress
	@BUILD=$(BUILD) CACHE=$(CACHE) bench/dagger

bench-bombs: root deps
	@$(MAKE) --no-print-directory all base
	@BUILD=$(BUILD) CACHE=$(CACHE) bench/bombs

install: all
	@BUILD=$(BUILD) DESTDIR='$(DESTDIR)' tools/install

uninstall:
	@DESTDIR='$(DESTDIR)' tools/install --remove

clean:
	rm -rf $(BUILD)

FORCE:

.PHONY: all help build-deps deps root run-deps base base-image registry demo \
        run test check \
        bench bench-bombs install uninstall clean FORCE
