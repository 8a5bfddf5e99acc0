"""The page, as a person uses it: seen through a browser."""

import csv
import json
import re
import shutil
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image, ImageOps
from playwright.sync_api import Page, Route, expect, sync_playwright

from channelhash.serve import items
from channelhash.serve.app import create_app
from channelhash.serve.service import Limits, Service
from serve.served import (
    ODD_ID,
    TOKEN,
    app_of,
    on_loopback,
    small_model,
    small_store,
    store_of_copies,
)

pytestmark = pytest.mark.browser
OURS = re.compile(r"blob:|data:|http://127\.0\.0\.1[:/]")


def chromium() -> str:
    """The browser. Fails, and does not skip, where there is none."""
    path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    return path or pytest.fail(
        "needs Chromium: install it (Debian: apt-get install chromium), or -m 'not browser'"
    )


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(folder, model):
    app = app_of(small_store(folder, model), model, limits=Limits(upload_bytes=200_000))
    with on_loopback(app) as address:
        yield address


@pytest.fixture
def page(browser):
    """A page on which nothing may go wrong unseen, and nothing may come from another host."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None,
    )
    page.on(
        "request", lambda request: None if OURS.match(request.url) else wrong.append(request.url)
    )
    yield page
    page.unroute_all(behavior="ignoreErrors")
    page.close()
    assert not wrong


def asked(page: Page) -> dict[str, list[str]]:
    """What stands in the address."""
    return parse_qs(urlsplit(page.url).query)


def ids(page: Page) -> list[str]:
    """The photographs that are shown, in order."""
    expect(page.locator("#results .show").first).to_be_visible()
    names = "all => all.map(img => img.src.split('images/')[1].split('?')[0])"
    return page.eval_on_selector_all("#results .show img", names)


def shown(page: Page, place: int = 0) -> Page:
    """Open a photograph (one item of the small store has none)."""
    page.locator("#results .show:has(img)").nth(place).click()
    expect(page.locator("#photo")).to_be_visible()
    return page.locator("#photo")


def heading(page: Page):
    return expect(page.get_by_role("heading", level=1))


def click(part: Page, name: str) -> None:
    part.get_by_role("button", name=name).click()


def ask(page: Page, words: str) -> None:
    page.fill("#words", words)
    page.keyboard.press("Enter")


def test_photographs_come_first_with_captions_and_in_an_order(page, address):
    page.goto(address)
    heading(page).to_have_text("31 photographs")
    newest = ids(page)
    assert len(newest) == 30
    first = page.locator("#results .show:has(img)").first
    expect(first.locator("img")).to_have_js_property("naturalWidth", 52)
    expect(first.locator(".caption")).to_have_css("opacity", "0")
    first.hover()
    expect(first.locator(".caption")).to_have_css("opacity", "1")
    expect(page.locator("#results .strip, #results .distance, #results .labels")).to_have_count(0)
    page.select_option("#order", "random")
    expect(page).to_have_url(re.compile("order=random&seed="))
    shuffled = ids(page)
    assert shuffled != newest
    assert sorted(shuffled) == sorted(newest)
    page.reload()
    assert ids(page) == shuffled


def test_rows_are_justified_and_endless(page, tmp_path):
    model = small_model(tmp_path, 150)
    with on_loopback(app_of(small_store(tmp_path, model, 150), model)) as address:
        page.goto(f"{address}?order=name")
        ids(page)
        places = "all => all.map(one => [one.offsetTop, one.offsetLeft + one.offsetWidth])"
        tops = page.eval_on_selector_all("#results .tile", places)
        ends = [
            max(right for top, right in tops if top == row)
            for row in sorted({top for top, _ in tops})[:3]
        ]
        assert max(ends) - min(ends) <= 1
        seen: set[str] = set()
        for _ in range(40):
            seen.update(ids(page))
            page.mouse.wheel(0, 500)
            page.wait_for_timeout(60)
        assert len(seen) == 150


def test_words_are_typed_and_codes_are_shown_where_they_are_asked_for(page, address):
    page.goto(address)
    ids(page)
    page.keyboard.press("/")
    expect(page.locator("#words")).to_be_focused()
    page.keyboard.type("a dark red picture")
    page.keyboard.press("Enter")
    heading(page).to_have_text("Best first")
    assert asked(page) == {"q": ["a dark red picture"]}
    expect(page.locator("#results .strip")).to_have_count(0)
    page.get_by_text("Advanced", exact=True).click()
    click(page, "Codes")
    first = page.locator("#results .tile").first
    expect(first.locator(".strip rect")).to_have_count(12)
    differing = first.locator(".strip rect.differs").count()
    expect(first.locator(".distance")).to_contain_text(f"{differing} bit")
    assert asked(page)["codes"] == ["1"]
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(page.locator("#words")).to_have_value("")
    expect(page.locator("#words")).not_to_be_focused()


def test_what_was_understood_stands_in_chips_that_can_be_taken_away(page, address):
    page.goto(f"{address}?q=picture+%222019%22+-green&label=red&r=12&where=year+%3C+2020&k=12")
    chips = page.locator("#chips .chip")
    expect(chips).to_have_count(6)
    names = [chip.removesuffix(" ×") for chip in chips.all_inner_texts()]
    assert names == ["picture", "2019", "not green", "within 12 bits", "red", "year < 2020"]
    chips.nth(2).click()
    expect(chips).to_have_count(5)
    assert asked(page)["q"] == ['picture "2019"']
    click(page, "within 12 bits: remove")
    expect(chips).to_have_count(4)
    page.go_back()
    expect(chips).to_have_count(5)


def test_what_the_camera_wrote_is_shown_and_a_camera_narrows_in_place_of_another(page, address):
    def tagged(route):
        # no item has such keys
        answer = route.fetch(url=route.request.url.partition("&where")[0]).json()
        tags = {
            "camera": "D2",
            "rating": 4,
            "lens": "50 mm",
            "place": "Porto",
            "lat": 41.1496,
            "lon": -8.611,
        }
        names = [{"name": name, "count": 1} for name in ("X'1", "D2")]
        items = [item | {"metadata": item["metadata"] | tags} for item in answer.get("items", [])]
        route.fulfill(json=answer | ({"items": items} if items else {"cameras": names}))

    page.route(re.compile(r"/facets$|/items\?"), tagged)
    page.goto(address)
    assert shown(page).locator(".tags").inner_text().split("\n\n") == [
        "50 mm",
        "★★★★☆",
        "Porto · 41.14960, -8.61100",
    ]
    page.keyboard.press("Escape")
    page.select_option("#camera", "X'1")
    expect(page).to_have_url(re.compile("where=camera"))
    assert asked(page)["where"] == ["camera = 'X''1'"]
    click(shown(page), "D2")
    expect(page).to_have_url(re.compile("D2"))
    assert asked(page)["where"] == ["camera = 'D2'"]


def test_a_picture_is_dropped_finds_itself_and_takes_words_beside_it(page, address, folder):
    page.goto(address)
    ids(page)
    content = list((folder / "images" / "5.png").read_bytes())
    drop = """content => {
        const files = new DataTransfer();
        files.items.add(new File([new Uint8Array(content)], "dropped.png", { type: "image/png" }));
        const options = { dataTransfer: files, bubbles: true, cancelable: true };
        for (const type of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, options));
    }"""
    page.evaluate(drop, content)
    chip = page.get_by_role("button", name="your picture: remove")
    expect(chip.locator("img")).to_have_js_property("naturalWidth", 52)
    assert "item005" in ids(page)
    code = asked(page)["code"]
    page.reload()
    ids(page)
    assert asked(page)["code"] == code
    ask(page, "green")
    expect(page.locator("#chips .chip")).to_have_text(["your picture ×"])
    assert (asked(page)["q"], asked(page)["code"]) == (["green"], code)


def test_from_a_photograph_to_more_like_it_to_its_texts_and_back(page, address):
    page.goto(f"{address}?q=red")
    name = ids(page)[3]
    click(shown(page, 3), "More like this")
    expect(page.get_by_role("button", name=re.compile("^like .*: remove"))).to_be_visible()
    assert asked(page) == {"id": [name]}
    assert name not in ids(page)
    click(shown(page), "Texts of this")
    expect(page.locator("#photo")).to_be_hidden()
    ids(page)
    assert (asked(page)["by"], asked(page)["in"]) == (["image"], ["text"])
    click(shown(page, 1), "Pictures for this")
    ids(page)
    assert (asked(page)["by"], asked(page)["in"]) == (["text"], ["image"])


def test_one_photograph_is_walked_through_and_read_with_the_keyboard(page, address):
    page.goto(f"{address}?order=name&where=year+%3E+0")
    names = ids(page)
    page.locator("#words").focus()
    page.locator("#results .show").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#results .show").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    photo = page.locator("#photo")
    expect(photo.locator("figure img")).to_have_attribute("src", f"images/{names[1]}?size=1280")
    page.keyboard.press("ArrowRight")
    expect(photo.locator("figure img")).to_have_attribute("src", f"images/{names[2]}?size=1280")
    click(photo, "Previous")
    expect(photo.locator("figure img")).to_have_attribute("src", f"images/{names[1]}?size=1280")
    expect(photo.get_by_role("button", name="Previous")).to_be_focused()
    photo.get_by_text("Details", exact=True).click()
    expect(photo.locator("dl")).to_contain_text("image hash")
    click(photo, "Original")
    expect(photo.locator("figure img")).to_have_attribute("src", f"originals/{names[1]}")
    expect(photo.locator("figure img")).to_have_js_property("naturalWidth", 52)
    page.keyboard.press("Escape")
    expect(photo).to_be_hidden()
    expect(page.locator("#results .show").nth(1)).to_be_focused()
    photo = shown(page, 1)
    label = photo.locator(".chip").first.inner_text()
    photo.locator(".chip").first.click()
    expect(page.get_by_role("button", name=f"{label}: remove")).to_be_visible()


def test_back_closes_a_photograph_and_then_leads_to_the_question_before(page, address):
    page.goto(address)
    ids(page)
    ask(page, "red")
    heading(page).to_have_text("Best first")
    for leave in (page.go_back, lambda: page.keyboard.press("Escape")):
        shown(page)
        leave()
        expect(page.locator("#photo")).to_be_hidden()
        assert asked(page) == {"q": ["red"]}
        expect(page.locator("#results .show:focus")).to_have_count(1)
    page.wait_for_timeout(200)  # Escape has gone back, too
    page.go_back()
    heading(page).to_have_text("31 photographs")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_answers_are_taken_away_as_a_file(page, address, kind):
    page.goto(f"{address}?q=red")
    names = ids(page)
    page.get_by_text("Advanced", exact=True).click()
    with page.expect_download() as download:
        page.click(f"#{kind}")
    content = Path(download.value.path()).read_text()
    rows = json.loads(content) if kind == "json" else list(csv.DictReader(content.splitlines()))
    assert [row["id"] for row in rows][: len(names)] == names


def test_a_question_that_another_takes_the_place_of_ends_without_an_error(page, address):
    """Both of its requests are under way; the fixture sees the error that one of them would leave
    behind.
    """
    held: list[Route] = []
    page.route(re.compile("/items/|/search$"), lambda route: held.append(route))
    with page.expect_request("**/items/*"), page.expect_request("**/search"):
        page.goto(f"{address}?id=item001")
    page.evaluate(
        "history.pushState(null, '', '?where=year+%3E+0'); dispatchEvent(new "
        "PopStateEvent('popstate'))"
    )
    heading(page).to_have_text("30 photographs")
    assert len(held) == 2


def test_an_answer_that_breaks_off_is_an_error_of_one_line(page, address):
    page.route(
        "**/search",
        lambda route: route.fulfill(body='{"results": [', content_type="application/json"),
    )
    page.goto(f"{address}?q=red")
    expect(page.locator("#error")).to_have_text(
        "The server's answer broke off. Is it still running?"
    )
    heading(page).to_have_text("That did not work")


def test_what_is_loading_is_shown_and_the_store_answers_meanwhile(page, address):
    state = {"loading": ["the model"]}
    page.route("**/info", lambda route: route.fulfill(json={**route.fetch().json(), **state}))
    page.goto(address)
    expect(page.locator("#facts")).to_have_text("31 items · getting ready")
    assert len(ids(page)) == 30
    state.update(loading=[])
    expect(page.locator("#facts")).to_have_text("31 items")


STATES = {
    "first": "",
    "found": "?q=picture+-green&label=red",
    "codes": "?q=picture&codes=1",
    "texts": "?q=picture&in=text",
    "error": "?q=picture&where=%28",
    "nothing": "?where=year%3C1900",
    "duplicates": "duplicates.html",
    "docs": "docs",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_axe_finds_nothing_to_mend_in_any_state(page, address, scheme, size):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    for state, query in STATES.items():
        page.goto(f"{address}{query}")
        page.wait_for_load_state("networkidle")
        _check_with_axe(page, state)
        if state == "found":
            click(shown(page), "Why this one?")
            expect(page.locator("#photo .reason")).to_be_visible()
            for summary in ("Bits", "Details"):
                page.locator("#photo").get_by_text(summary, exact=True).click()
            _check_with_axe(page, "photograph")
            page.keyboard.press("Escape")
            if page.locator("#filter").is_visible():
                page.locator("#filter").click()
            page.get_by_text("Advanced", exact=True).click()
            _check_with_axe(page, "filter")
    less = {"close": False, "results": [], "unlikely": True, "did_you_mean": "a bicycle"}
    page.route("**/search", lambda route: route.fulfill(json={**route.fetch().json(), **less}))
    page.goto(f"{address}?q=bycicle")
    heading(page).to_have_text("Nothing fits")
    _check_with_axe(page, "nothing fits")
    page.unroute("**/search")
    page.route(
        "**/search", lambda route: route.fulfill(json={**route.fetch().json(), "close": False})
    )
    page.goto(f"{address}?id=item001")
    heading(page).to_have_text("Nothing close")
    _check_with_axe(page, "nothing close")
    page.route("**/items?*", lambda route: None)
    page.goto(address)
    expect(page.locator("#results .skeleton")).to_be_visible()
    _check_with_axe(page, "loading")


def _check_with_axe(page: Page, state: str) -> None:
    """Check the rules of WCAG 2.2 A and AA, and that there is a level-one heading."""
    from axe_playwright_python.sync_playwright import Axe

    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": rules}})
    assert not found.violations_count, (state, found.generate_report())
    assert page.locator("h1").count() == 1, state


def test_what_is_less_likely_and_what_was_meant_are_offered(page, address):
    """Of the answers to a question with a slip, the server holds back what is less likely to fit;
    they come by date.
    """
    asked = []

    def respond(route):
        body = route.request.post_data_json
        asked.append((body["text"], body["fitting"], body["order"]))
        held_back = {"unlikely": True, "did_you_mean": "a red picture"} if body["fitting"] else {}
        answer = route.fetch().json()
        if body["fitting"]:
            answer["results"] = [] if body["offset"] else answer["results"][:3]
        route.fulfill(json={**answer, **held_back})

    page.route("**/search", respond)
    page.goto(f"{address}?q=a+rde+picture")
    expect(page.locator("#results .tile")).to_have_count(3)
    page.get_by_label("Order").select_option("Oldest first")
    heading(page).to_have_text("By date")
    click(page, "More, less likely")
    click(page, "also what is less likely: remove")
    click(page, "a red picture?")
    expect(page.locator("#words")).to_have_value("a red picture")
    expect(page.locator("#results .tile")).to_have_count(3)
    slip, meant = "a rde picture", "a red picture"
    assert list(dict.fromkeys(asked)) == [
        (slip, True, None),
        (slip, True, "oldest"),
        (slip, False, "oldest"),
        (meant, True, "oldest"),
    ]


def test_answers_are_counted_and_a_line_parts_the_possible_from_the_likely(page, address):
    parts = [("words", "dog", ""), ("date", "summer 2019", "June 2019 to August 2019")]
    parts.append(("place", "in Rome", "Rome"))
    understood = [{"kind": kind, "value": value, "means": means} for kind, value, means in parts]
    sure = {"found": 5, "likely": 2, "unlikely": True, "close": True, "understood": understood}

    def respond(route):
        answer = route.fetch(post_data={"text": "red", "k": 5}).json()
        if route.request.post_data_json["offset"]:
            answer["results"] = []
        route.fulfill(json={**answer, **sure})

    page.route("**/search", respond)
    page.goto(f"{address}?q=dog+summer+2019+in+Rome&where=camera+%3D+%27D2%27")
    heading(page).to_have_text("5 photographs")
    expect(page.locator("#status")).to_have_text("2 likely, 3 possible")
    dates = "Summer 2019: 1 June – 31 August ×"
    expect(page.locator("#chips .chip")).to_have_text(["dog ×", dates, "Rome ×", "Camera: D2 ×"])
    expect(page.locator("#results > h2 ~ ol .tile")).to_have_count(3)
    expect(page.locator("#results .tile")).to_have_count(5)
    last, more = (page.locator(part).last.bounding_box() for part in ("#results ol", "#unlikely"))
    assert more["y"] - last["y"] - last["height"] < 30


def test_a_telephone_shows_photographs_at_once_and_the_filter_on_request(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    for query in ("", "?q=picture", "?q=picture+-green&label=red&where=year+%3C+2020"):
        page.goto(f"{address}{query}")
        expect(page.locator("#results .tile").first).to_be_visible()
        assert page.locator("#results .tile").first.bounding_box()["y"] <= 200, query
    for hidden in (page.get_by_label("Order"), page.get_by_text("Advanced", exact=True)):
        expect(hidden).to_be_hidden()
        click(page, "Filter")
        expect(hidden).to_be_visible()
        click(page, "Filter")


def test_texts_are_text_and_odd_ids_are_found(page, address):
    page.goto(f"{address}?q=a+dark+blue+picture&in=text")
    click(page, "odd <b>&</b>")
    click(page.locator("#photo"), "More like this")
    expect(page.get_by_role("button", name="like odd <b>&</b>: remove")).to_be_visible()
    assert page.evaluate("new URLSearchParams(location.search).get('id')") == ODD_ID


def test_a_server_that_is_gone_is_said(page, model, tmp_path):
    with on_loopback(app_of(small_store(tmp_path, model), model)) as address:
        page.goto(address)
        ids(page)
    ask(page, "red")
    expect(page.locator("#error")).to_contain_text("does not answer")


def test_where_reading_needs_a_token_the_page_asks_for_it_once(page, model, tmp_path):
    token = "a-token-to-read-with"
    with on_loopback(app_of(small_store(tmp_path, model), model, read_token=token)) as address:
        page.goto(f"{address}?q=picture")
        for given in ("not-the-token-at-all", token):
            expect(page.locator("#token")).to_be_visible()
            page.fill("#token-value", given)
            page.keyboard.press("Enter")
        expect(page.locator("#results img").first).to_have_js_property("naturalWidth", 52)
        page.reload()
        expect(page.locator("#results img").first).to_have_js_property("naturalWidth", 52)
        expect(page.locator("#token")).not_to_be_visible()
        photo = shown(page)
        click(photo, "Original")
        expect(photo.locator("figure img")).to_have_attribute("src", re.compile("^blob:"))


def test_answers_of_words_alone_show_no_distance_and_lead_on(page, tmp_path):
    model = small_model(tmp_path, of_texts=False)
    with on_loopback(app_of(small_store(tmp_path, model), model)) as address:
        page.goto(f"{address}?q=red&codes=1")
        expect(page.locator("#status")).to_contain_text("by words alone")
        ids(page)
        expect(page.locator("#results .distance, #results .strip")).to_have_count(0)
        ask(page, "unheard")
        expect(page.locator("#status")).to_contain_text("No item has any of these words")
        page.goto(f"{address}?q=red&codes=1")
        click(shown(page), "More like this")
        expect(page.locator("#results .distance").first).to_be_visible()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_sticks_out_of_a_narrow_screen(page, address, width):
    page.set_viewport_size({"width": width, "height": 800})
    for query in ("", "?q=picture", "?q=picture&in=text&codes=1", "?q=picture&where=%28"):
        page.goto(f"{address}{query}")
        expect(page.locator("#error:visible, .tile").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_why_this_one_is_said_in_a_persons_words_and_bits_are_under_details(page, address):
    page.goto(f"{address}?q=a+dark+red+picture&codes=1")
    ids(page)
    first = page.locator("#results .tile").first
    differing = first.locator(".strip rect.differs").count()
    first.get_by_role("button", name="Why this one").focus()
    page.keyboard.press("Enter")
    photo = page.locator("#photo")
    expect(photo.locator(".reason")).to_contain_text(re.compile("matters? most|decides"))
    expect(photo.locator(".bits").first).to_be_hidden()
    photo.get_by_text("Bits", exact=True).click()
    expect(photo.locator(".hint", has_text="of 12 bits agree")).to_be_visible()
    assert photo.locator(".bits li").count() == 12
    assert photo.locator(".bits").first.locator("li").count() == 12 - differing
    expect(photo.locator(".influences .word")).to_have_text(["a", "dark", "red", "picture"])
    assert photo.locator(".heat rect").count() == 8 * 10
    picture, heat = (photo.locator(f".mapped {part}").bounding_box() for part in ("img", "svg"))
    assert picture == heat
    photo.get_by_role("button", name="Colours").press("Space")
    expect(photo.locator(".heat")).to_be_hidden()


def test_a_question_before_the_server_has_said_what_it_searches_waits_for_that(
    page, address, folder
):
    held: list[Route] = []
    page.route("**/info", lambda route: held.append(route))  # the page asks once
    for question in ("words", "picture"):
        with page.expect_request("**/info"):
            page.goto(address)
        if question == "words":
            page.locator("#words").fill("red")
            page.locator("#words").press("Enter")
        else:
            page.set_input_files("#file", folder / "images" / "5.png")
        page.wait_for_timeout(100)  # the handler has run, and found nothing known yet
        assert page.locator("#results .tile").count() == 0, question
        held.pop().continue_()
        heading(page).to_contain_text("first")
        assert ids(page), question


def test_new_photographs_appear_and_people_at_the_machine_see_where(
    page, address, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(items, "_runs", lambda _: False)  # no window opens
    app = app_of(small_store(tmp_path, model), model, hosts={"127.0.0.1"})
    report = app.state.service.report
    with on_loopback(app) as here:
        report.progress("encode")(12, 1000)
        page.goto(here)
        expect(page.locator("#reading")).to_have_text("Indexing 12 of 1,000 photographs")
        heading(page).to_have_text("31 photographs")
        service = app.state.service
        service.store.add(["late"], np.zeros((1, 2), np.uint8), metadata=[{"text": "late"}])
        expect(page.locator("#new")).to_have_text("1 new · Show")
        heading(page).to_have_text("31 photographs")  # as long as it is not asked for
        click(page, "Show")
        heading(page).to_have_text("32 photographs")
        expect(page.locator("#new")).to_be_hidden()
        service.store.delete(["item003", "late"])
        report.stage, report.problem = b"", b"/photos: no pictures"
        heading(page).to_have_text("30 photographs")
        expect(page.locator("#reading")).to_have_text("/photos: no pictures")
        place = shown(page).locator(".place")
        expect(place.locator("code")).to_have_text(re.compile(re.escape(f"{tmp_path}/")))
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        click(place, "Copy path")
        expect(place.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == place.locator("code").inner_text()
        click(place, "Show in folder")
        expect(place.get_by_role("alert")).to_contain_text("no file manager")
    page.goto(address)
    expect(shown(page).locator(".place code")).to_have_text(re.compile(r"^item\d+$"))
    expect(page.locator(".place").get_by_role("button")).to_have_text(["Copy path"])


def test_copies_stand_side_by_side_and_a_person_moves_one_and_moves_it_back(page, tmp_path):
    store = store_of_copies(tmp_path)
    moved = tmp_path / "photos duplicates" / "a.png"
    with on_loopback(app_of(store, None, token=TOKEN)) as address:
        page.goto(f"{address}duplicates.html")
        row = page.locator("#groups li")
        expect(row).to_have_count(1)
        page.locator("#radius").fill("2")
        page.locator("#radius").press("Enter")
        size = (tmp_path / "photos" / "small.png").stat().st_size
        freed = f"{round(size / 1000)} kB"
        expect(page.locator("#status")).to_have_text(f"1 group within 2 bits · frees up to {freed}")
        expect(page.locator("#groups figcaption")).to_have_count(2)
        expect(row.locator("[aria-pressed=true]")).to_have_attribute("aria-label", "Keep a.png")
        click(row, "Keep small.png")
        click(row, "Move the rest…")
        page.locator("#token-value").fill(TOKEN)
        page.locator("#token-value").press("Enter")
        click(row, "Move 1 file")
        expect(page.locator("#said")).to_have_text("Moved 1 file to “photos duplicates”.")
        assert moved.exists()
        click(page, "Undo")
        expect(row).to_have_count(1)
        assert not moved.exists()
        click(row, "Not duplicates")
        expect(row).to_have_count(0)
        page.reload()
        expect(page.locator("#status")).to_have_text("No two items are near-duplicates.")


def test_a_person_on_this_machine_chooses_where_nothing_tells_the_original(page, tmp_path):
    """Without a token; the sure one stands first, and a mirrored one waits for a choice."""
    store = store_of_copies(tmp_path)
    photos = tmp_path / "photos"
    with Image.open(photos / "a.png") as image:
        ImageOps.mirror(image).save(photos / "b.png")
    with on_loopback(app_of(store, None, hosts={"127.0.0.1"})) as address:
        page.goto(f"{address}duplicates.html")
        row = page.locator("#groups li")
        expect(row.locator("figure").first).to_contain_text("To keep: a.png")
        expect(row.locator("figure").nth(1)).to_contain_text("Unsure: b.png")
        click(row, "Move the rest…")
        expect(row).to_contain_text("1 file would go")
        click(row, "Cancel")
        click(row, "Keep b.png")
        click(row, "Move the rest…")
        click(row, "Move 2 files")
        expect(page.locator("#status")).to_have_text("No two items are near-duplicates.")
        assert [path.name for path in photos.iterdir()] == ["b.png"]


def test_all_stores_are_searched_and_a_photograph_is_opened_in_its_own(page, model, tmp_path):
    services: list[Service] = []
    for name in ("Rome", "Old scans"):
        (tmp_path / name).mkdir()
        store = small_store(tmp_path / name, model)
        services.append(Service(store, lambda: model, name=name, first=next(iter(services), None)))
    with on_loopback(create_app(*services)) as address:
        page.goto(address)
        ask(page, "a red picture")
        heading(page).to_have_text("The best of each store in turn")
        _check_with_axe(page, "of all stores")
        page.locator("#results .show:has(img)").nth(1).click()
        expect(page.locator("#photo")).to_be_visible()
        assert urlsplit(page.url).path == "/stores/Old%20scans/"
        page.keyboard.press("Escape")
        page.locator("#store").select_option("Rome")
        page.wait_for_url("**/stores/Rome/?q=a+red+picture")
