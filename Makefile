# `make help` lists the targets. Python is the one of .venv, made by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install dev say-demo say-test demo test test-photos test-browser test-docs test-slow test-gpu test-lowest test-order coverage benchmarks budget docs docs-serve wheel test-wheel release committed style lint clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## .venv with the package
dev: $(VENV)/.installed-dev  ## .venv with the package and what tests need

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) tools/install.py $(VENV) '.[clip,serve,train]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(PYTHON) tools/install.py $(VENV) '.[dev]'
	@touch $@

$(VENV)/.installed-photos: pyproject.toml constraints.txt
	$(PYTHON) tools/install.py $(VENV) '.[serve,train]'
	@touch $@

# What comes and how long it takes on two cores, before anything is installed.
say-demo:
	@echo 'make demo: install what photographs need (once, 2 to 7 minutes), then draw pictures, train, compare and search: about 4 minutes'
say-test:
	@echo 'make test: install what tests need (once, 2 to 7 minutes), then ruff, pytest and mypy: about 3 minutes'

demo: say-demo $(VENV)/.installed-photos  ## the whole job on the embedded data set, 4 minutes
	$(BIN)/channelhash demo

# A file's tests stay in one process: they share what they made. One thread each, so that processes do not fight for
# cores. What Python compiles is kept, for the processes that tests start.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := --numprocesses logical --maxprocesses 4 --dist loadfile

FAST := -m "not slow and not gpu and not browser and not docs"

# mypy runs beside the tests, and shows what it found after them; nothing found, and the tests' closing line is the last.
test: say-test dev style  ## style, types and tests on all cores (no GPU, no browser, no network), 3 minutes
	@mkdir -p build
	@echo 'mypy, beside: $(PYTEST) $(PARALLEL) $(FAST)'
	@$(BIN)/mypy > build/mypy.txt 2>&1 & types=$$!; \
	$(PYTEST) $(PARALLEL) $(FAST); status=$$?; \
	wait $$types || { status=$$?; cat build/mypy.txt; }; exit $$status

# A folder as people name theirs, and an environment as README installs it: nothing else may be in it, or what only works
# with another extra would pass. What a test needs beyond that, `tests/extras.py` says; the files left out here are of
# other stores, of the page in a browser and of the description of the API.
FOLDER := Fotos Zürich [neu] 照片
PHOTOS := build/photos
PHOTO_TESTS := tests/indexing tests/search tests/serve tests/copies tests/duplicates tests/cli/test_photos.py tests/cli/test_index.py tests/utils/test_fonts.py \
	tests/utils/test_watch.py $(addprefix --ignore tests/,search/test_milvus.py search/test_postgres.py search/test_transfer.py search/test_own_store.py \
	search/servers.py serve/test_description.py serve/test_page.py)
OTHERS := jinja2 matplotlib numba pyarrow scipy sklearn torch

test-photos:  ## tests of photographs, and README's commands, with [photos,serve] alone, 4 minutes
	$(PYTHON) tools/install.py $(PHOTOS) '.[photos,serve]'
	$(PHOTOS)/bin/pip install --quiet --constraint constraints.txt httpx hypothesis psutil pytest pytest-xdist
	@for name in $(OTHERS); do \
		if $(PHOTOS)/bin/python -c "import $$name" 2> /dev/null; then echo "$(PHOTOS) has $$name, which [photos,serve] does not bring"; exit 1; fi; \
	done
	rm -rf "build/$(FOLDER)"
	mkdir -p "build/$(FOLDER)/Bilder 北京"
	CHANNELHASH_TESTS_WITHOUT_EXTRAS=1 OMP_NUM_THREADS=1 $(PHOTOS)/bin/python -m pytest $(PARALLEL) $(FAST) $(PHOTO_TESTS) \
		--basetemp "build/$(FOLDER)/tests"
	for path in examples/photographs/*.jpg; do cp "$$path" "build/$(FOLDER)/Bilder 北京/Straße [1] é $${path##*/}" || exit 1; done
	cd "build/$(FOLDER)" && for question in "a dog on a beach" café 塔 кошка; do \
		../../$(PHOTOS)/bin/channelhash search "Bilder 北京" "$$question" -k 3 --all --sheet "$$question.png" --open || exit 1; \
		test -s "$$question.png" || exit 1; \
	done
	cd "build/$(FOLDER)" && ../../$(PHOTOS)/bin/channelhash duplicates "Bilder 北京" --sheet Gruppen.png

test-order: dev  ## the same tests in a random order, whose seed is printed
	$(PYTEST) $(PARALLEL) $(FAST) -p randomly -v

coverage: dev  ## the same tests, and the lines of each package that they run
	$(PYTEST) $(PARALLEL) $(FAST) --cov --cov-report=
	$(BIN)/coverage report

BENCHMARKS := learned metrics loss train start serve stores unlabelled words search quality
benchmarks: dev  ## every benchmark again, on an idle machine; about an hour, goes on where it stopped
	@mkdir -p build/benchmarks
	@for name in $(BENCHMARKS); do \
		test -f build/benchmarks/$$name.md && continue; echo $$name; \
		$(BIN)/python benchmarks/$$name.py > build/benchmarks/$$name.tmp || exit 1; \
		mv build/benchmarks/$$name.tmp build/benchmarks/$$name.md; \
	done

test-browser: dev  ## tests of pages, with Debian's chromium
	$(BIN)/python -m pytest -m browser

test-slow: dev  ## tests that take minutes
	$(PYTEST) $(PARALLEL) -m "slow and not gpu"

test-gpu: dev  ## tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

# The oldest versions are those of what pyproject.toml names itself; what that needs in turn is as new as it may be. The
# two tests left out are of what only newer versions do: describe forms exactly, and build a model without its weights.
LOWEST := build/lowest
# The last four left out are of files that PyArrow reads from 17 on but writes from 25 on, and of a request for several parts of a
# file, which Starlette below 1 answers with one.
test-lowest:  ## tests of the core with the oldest versions that are allowed, which uv chooses
	$(PYTHON) -m venv build/uv
	build/uv/bin/pip install --quiet uv
	$(PYTHON) -m venv --clear $(LOWEST)
	build/uv/bin/uv pip install --python $(LOWEST) --resolution lowest-direct \
		--editable '.[clip,exported,heif,mat,mcp,milvus,ocr,onnx,photos,postgres,serve,test,train]'
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest $(PARALLEL) $(FAST) \
		tests/codes tests/copies tests/data tests/duplicates tests/indexing tests/losses tests/metrics tests/models tests/search tests/serve \
		--ignore tests/serve/test_description.py \
		--deselect tests/models/test_backbones.py::test_cliphash_has_the_papers_sizes \
		--deselect tests/data/test_bulk.py::test_pictures_in_parquet_are_paths_or_bytes_of_several_types \
		--deselect tests/data/test_bulk.py::test_features_are_lists_of_any_numbers_and_layout \
		--deselect tests/codes/test_code_set.py::test_a_copy_with_other_types_of_the_same_values_is_read \
		--deselect tests/serve/test_items.py::test_several_parts_are_sent_apart

test-docs: dev  ## run what the pages and notebooks show
	$(BIN)/python -m pytest -m "docs and not slow"

budget: dev  ## how much there is to read and how tangled it is, and may be
	$(BIN)/python tests/test_budget.py

docs: dev  ## check prose and links, and build the documentation in site/; warnings are errors
	$(BIN)/python tools/site/prose.py
	$(BIN)/python tools/site/links.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: dev  ## the same while you write, at http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

wheel: dev  ## the package as a wheel, in dist/
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist

test-wheel: wheel  ## the wheel in an empty environment: a folder of photographs, then with PyTorch channelhash demo --quick
	rm -rf build/wheel
	$(PYTHON) tools/install.py build/wheel "$$(echo dist/channelhash-*.whl)[photos,serve]"
	cp -r examples/photographs "build/wheel/$(FOLDER)"
	rm -rf "build/wheel/$(FOLDER)/.channelhash"  # codes of an earlier search
	cd build/wheel && bin/channelhash search "$(FOLDER)" "a bird sitting on a branch" -k 3 --sheet Vögel.png --open
	$(PYTHON) tools/install.py build/wheel "$$(echo dist/channelhash-*.whl)[train]"
	cd build/wheel && bin/channelhash demo --quick --out demo

# What lists the packages of an environment stays out of the one that it lists, and of .venv.
release: committed test-wheel  ## what a release publishes, in dist/: wheel, source, list of packages (CycloneDX), checksums
	$(BIN)/python -m build --sdist --outdir dist
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/pip install --quiet cyclonedx-bom==7.5.0
	build/sbom/bin/cyclonedx-py environment build/wheel/bin/python --pyproject pyproject.toml --output-reproducible \
		--output-file "$$(echo dist/channelhash-*.whl | sed 's/-py3-none-any.whl/.cdx.json/')"
	cd dist && sha256sum channelhash-* > SHA256SUMS && cat SHA256SUMS

committed:
	@git diff --quiet HEAD || { echo "There are changes that are not committed; commit them, then release."; exit 1; }

style: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

lint: style  ## ruff and mypy --strict
	$(BIN)/mypy

clean:  ## remove .venv and caches
	rm -rf $(VENV) site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
