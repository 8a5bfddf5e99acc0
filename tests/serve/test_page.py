"""The page, as a person uses it: seen through a browser."""

import shutil
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from channelhash.models import load_model
from channelhash.search import open_store
from channelhash.search.duplicates import find_duplicates
from channelhash.serve import Limits, create_app
from channelhash.serve.auth import Tokens
from picture_runs import picture_config, write_pictures
from serve.served import ODD_ID, on_loopback, small_model, small_store
from small_runs import run_command

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail("these tests drive Chromium: install it (Debian: apt-get install chromium), or -m 'not browser'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def address(folder):
    model = small_model(folder)
    app = create_app(small_store(folder, model), model, Limits(upload_bytes=200_000))
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
    page.on("console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None)
    page.on("request", lambda request: wrong.append(request.url) if _foreign(request.url) else None)
    yield page
    page.close()
    assert not wrong


def _foreign(url: str) -> bool:
    return urlsplit(url).scheme not in ("blob", "data") and urlsplit(url).hostname != "127.0.0.1"


def asked(page: Page) -> dict[str, list[str]]:
    """What stands in the address."""
    return parse_qs(urlsplit(page.url).query)


def ids(page: Page) -> list[str]:
    """The answers' pictures, in order."""
    expect(page.locator("#results .card:not(.waiting)").first).to_be_visible()
    return page.eval_on_selector_all(
        "#results .show img", "all => all.map(img => img.getAttribute('src').split('?')[0])"
    )


def test_words_are_typed_and_pictures_are_found_with_bars_bits_labels_and_texts(page, address):
    page.goto(address)
    expect(page.locator("#facts")).to_have_text("31 items · 12 bits")
    page.keyboard.press("/")
    expect(page.locator("#words")).to_be_focused()
    page.keyboard.type("a dark red picture")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("24 answers in")
    expect(page.locator("#query")).to_contain_text("Pictures for “a dark red picture”")
    assert asked(page) == {"q": ["a dark red picture"]}
    first = page.locator("#results .card").first
    expect(first.locator(".distance")).to_contain_text("bit")
    expect(first.locator(".labels span")).to_have_count(1)
    expect(first.locator(".text")).to_contain_text("picture")
    expect(first.locator("img")).to_have_js_property("naturalWidth", 52)
    differing = first.locator(".strip rect.differs").count()
    assert first.locator(".distance").inner_text().startswith(f"{differing} bit")
    assert first.locator(".strip rect").count() == 12
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(page.locator("#words")).to_have_value("")
    expect(page.locator("#words")).not_to_be_focused()


def test_a_search_is_in_the_address_and_the_back_button_leads_to_the_one_before(page, address):
    page.goto(f"{address}?q=a+green+picture&k=12&r=12&label=green&in=image")
    expect(page.locator("#status")).to_contain_text("10 answers")
    expect(page.locator("#k")).to_have_value("12")
    expect(page.locator(".chip[aria-pressed=true]")).to_contain_text("green")
    before = ids(page)
    page.fill("#words", "a bright blue picture")
    page.click("#go")
    expect(page.locator("#query")).to_contain_text("a bright blue picture")
    page.go_back()
    expect(page.locator("#query")).to_contain_text("a green picture")
    assert ids(page) == before
    expect(page.locator("#words")).to_have_value("a green picture")


def test_a_picture_is_dropped_and_finds_itself(page, address, folder):
    page.goto(address)
    expect(page.locator("#welcome")).to_be_visible()
    content = list((folder / "images" / "5.png").read_bytes())
    page.evaluate(
        """content => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(content)], "dropped.png", { type: "image/png" }));
            const options = { dataTransfer: files, bubbles: true, cancelable: true };
            for (const type of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, options));
        }""",
        content,
    )
    expect(page.locator("#query")).to_contain_text("Pictures near your picture")
    expect(page.locator("#query img")).to_have_js_property("naturalWidth", 52)
    assert "images/item005" in ids(page)
    expect(page.locator("#results .card").first.locator(".distance")).to_have_text("0 bits")
    code = asked(page)["code"]
    page.reload()
    expect(page.locator("#query")).to_contain_text("Pictures near a code")
    assert asked(page)["code"] == code


def test_a_picture_is_chosen_and_one_that_is_none_gives_the_servers_words(page, address, folder, tmp_path):
    page.goto(address)
    expect(page.locator("#welcome")).to_be_visible()
    page.set_input_files("#file", folder / "images" / "1.png")
    assert "images/item001" in ids(page)
    (tmp_path / "no.png").write_text("no picture")
    page.set_input_files("#file", tmp_path / "no.png")
    expect(page.locator("#error")).to_contain_text("not a picture")
    expect(page.locator("#results .card")).to_have_count(0)
    noise = tmp_path / "large.png"
    Image.effect_noise((700, 700), 90).save(noise)
    page.set_input_files("#file", noise)
    expect(page.locator("#error")).to_contain_text("the server takes at most 0.2 MB")


def test_from_a_picture_to_more_like_it_to_its_texts_and_back_to_pictures(page, address):
    page.goto(f"{address}?q=red&k=12")
    name = ids(page)[3].removeprefix("images/")
    page.locator("#results .card").nth(3).get_by_role("button", name="More like this").click()
    expect(page.locator("#query")).to_contain_text("Pictures like")
    assert asked(page)["id"] == [name]
    assert f"images/{name}" in ids(page)
    expect(page.locator("#results .card").first.locator(".distance")).to_have_text("0 bits")
    page.locator("#results .card").first.get_by_role("button", name="Texts of this").click()
    expect(page.locator("#query")).to_contain_text("Texts of")
    expect(page.get_by_role("radio", name="Texts")).to_be_checked()
    assert (asked(page)["by"], asked(page)["in"]) == (["image"], ["text"])
    page.locator("#results .card", has=page.locator("img")).first.get_by_role(
        "button", name="Pictures for this"
    ).click()
    expect(page.locator("#query")).to_contain_text("Pictures for")
    assert (asked(page)["by"], asked(page)["in"]) == (["text"], ["image"])


def test_what_is_found_is_narrowed_by_labels_distance_and_a_filter(page, address):
    page.goto(f"{address}?q=picture&k=48")
    expect(page.locator("#status")).to_contain_text("31 answers")
    page.get_by_role("button", name="green 10").click()
    expect(page.locator("#status")).to_contain_text("10 answers")
    page.get_by_role("button", name="blue 10").click()
    expect(page.locator("#status")).to_contain_text("20 answers")
    page.click("#filter")
    expect(page.locator("#where")).to_be_focused()
    page.keyboard.type("year < 2006")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("4 answers")
    assert asked(page)["where"] == ["year < 2006"]
    page.fill("#where", "id = 'nobody'")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("Nothing found")
    page.get_by_role("button", name="Search everything").click()
    expect(page.locator("#status")).to_contain_text("31 answers")
    page.focus("#radius")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#radius-words")).to_have_text("1 bit")
    expect(page.locator("#status")).not_to_contain_text("31 answers")
    page.wait_for_function("new URLSearchParams(location.search).get('r') === '1'")


def test_a_filter_that_is_wrong_shows_the_servers_words_and_the_next_search_works(page, address):
    page.goto(f"{address}?q=picture&where=colour+%3D")
    expect(page.locator("#error")).to_contain_text("where")
    expect(page.locator("#error")).to_have_attribute("role", "alert")
    page.fill("#where", "")
    page.click("#go")
    expect(page.locator("#status")).to_contain_text("24 answers")
    expect(page.locator("#error")).to_be_hidden()


def test_answers_are_walked_through_and_opened_with_the_keyboard(page, address):
    page.goto(f"{address}?q=picture")
    ids(page)
    shows = page.locator("#results .show")
    shows.first.focus()
    page.keyboard.press("ArrowRight")
    expect(shows.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#item")).to_be_visible()
    expect(page.locator("#item dl")).to_contain_text("year")
    page.keyboard.press("Escape")
    expect(page.locator("#item")).to_be_hidden()
    expect(shows.nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#results .card").nth(1).get_by_role("button", name="Why does this match")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#results .card").nth(1).get_by_role("button", name="More like this")).to_be_focused()


def test_texts_are_text_and_odd_ids_are_found(page, address):
    page.goto(f"{address}?q=a+dark+blue+picture&in=text&k=48")
    odd = page.locator("#results .card", has_text="odd <b>&</b>")
    expect(odd).to_have_count(1)
    odd.get_by_role("button", name="More like this").click()
    expect(page.locator("#query")).to_contain_text("Texts like odd <b>&</b>")
    assert page.evaluate("new URLSearchParams(location.search).get('id')") == ODD_ID


def test_a_server_that_is_gone_is_said(browser, folder, tmp_path):
    model = small_model(tmp_path)
    page = browser.new_page()
    with on_loopback(create_app(small_store(tmp_path, model), model)) as address:
        page.goto(address)
        expect(page.locator("#welcome")).to_be_visible()
    page.fill("#words", "red")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("does not answer")
    page.close()


def test_where_reading_needs_a_token_the_page_asks_for_it_once(page, tmp_path):
    model, token = small_model(tmp_path), "a-token-to-read-with"
    with on_loopback(create_app(small_store(tmp_path, model), model, token=Tokens(read=token))) as address:
        page.goto(f"{address}?q=picture")
        for given in ("not-the-token-at-all", token):
            expect(page.locator("#token")).to_be_visible()
            page.fill("#token-value", given)
            page.keyboard.press("Enter")
        expect(page.locator("#status")).to_contain_text("24 answers")
        expect(page.locator("#results img").first).to_have_js_property("naturalWidth", 52)
        page.reload()
        expect(page.locator("#status")).to_contain_text("24 answers")
        expect(page.locator("#token")).not_to_be_visible()


def test_answers_of_words_alone_show_no_distance_and_lead_on(page, tmp_path):
    model = small_model(tmp_path, of_texts=False)
    with on_loopback(create_app(small_store(tmp_path, model), model)) as address:
        page.goto(f"{address}?q=red")
        expect(page.locator("#query")).to_contain_text("by words alone")
        expect(page.locator("#results .card:not(.waiting)").first).to_be_visible()
        expect(page.locator("#results .near, #results .strip")).to_have_count(0)
        page.fill("#words", "unheard")
        page.keyboard.press("Enter")
        expect(page.locator("#welcome")).to_contain_text("No item has any of these words")
        page.goto(f"{address}?q=red")
        page.locator("#results .card").first.get_by_role("button", name="More like this").click()
        expect(page.locator("#results .near").first).to_be_visible()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_sticks_out_of_a_narrow_screen(page, address, width):
    page.set_viewport_size({"width": width, "height": 800})
    for query in ("", "?q=picture", "?q=picture&in=text", "?q=picture&where=%28"):
        page.goto(f"{address}{query}")
        expect(page.locator("#welcome:visible, #error:visible, .card:not(.waiting)").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_description_of_the_api_is_shown(page, address):
    page.goto(f"{address}docs")
    expect(page.locator("h2", has_text="/search/image")).to_be_visible()
    expect(page.locator("section", has_text="/items/{item_id}").filter(has_text="DELETE")).to_contain_text("token")


def test_a_trained_run_is_served_and_its_colours_are_found(page, tmp_path):
    config = picture_config(
        tmp_path / "config.json", write_pictures(tmp_path), {"name": "small", "image_size": 32, "width": 8},
        epochs=20, learning_rate=3e-3, validate_every=20, checkpoint_every=20,
    )  # fmt: skip
    assert run_command("train", config, "--out", tmp_path / "run") == 0
    assert run_command("evaluate", tmp_path / "run") == 0
    app = create_app(open_store(tmp_path / "run"), load_model(tmp_path / "run"))
    with on_loopback(app) as address:
        page.goto(address)
        for colour in ("red", "green", "blue"):
            page.fill("#words", f"a {colour} picture")
            page.keyboard.press("Enter")
            expect(page.locator("#query")).to_contain_text(f"a {colour} picture")
            ids(page)
            labels = page.locator("#results .labels span").all_inner_texts()[:8]
            assert labels.count(colour) >= 7, (colour, labels)
        page.goto("about:blank")  # closes its connections


def test_why_an_answer_matches_is_shown_and_closed_with_the_keyboard(page, address):
    page.goto(f"{address}?q=a+dark+red+picture")
    ids(page)
    why = page.locator("#results .card").first.get_by_role("button", name="Why does this match")
    why.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#why .whole")).to_contain_text("of 12 bits agree")
    differing = page.locator("#results .card").first.locator(".strip rect.differs").count()
    assert page.locator("#why .bits li").count() == 12
    assert page.locator("#why .bits").first.locator("li").count() == 12 - differing
    expect(page.locator("#why .influences .word")).to_have_text(["a", "dark", "red", "picture"])
    expect(page.locator("#why .mapped img")).to_have_js_property("naturalWidth", 52)
    assert page.locator("#why .heat rect").count() == 8 * 10
    picture, heat = (page.locator(f"#why .mapped {part}").bounding_box() for part in ("img", "svg"))
    assert picture == heat
    page.get_by_role("button", name="Colours").press("Space")
    expect(page.locator("#why .heat")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#why")).to_be_hidden()
    expect(why).to_be_focused()


def test_a_question_before_the_server_has_said_what_it_searches_waits_for_that(page, address, folder):
    held = []
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
        assert page.locator("#results .card").count() == 0, question
        held.pop().continue_()
        assert ids(page), question


def test_words_that_are_typed_before_the_server_has_answered_stay(page, address):
    held = []
    page.route("**/info", lambda route: held.append(route))
    with page.expect_request("**/info"):
        page.goto(address)
    page.locator("#words").fill("red")
    held.pop().continue_()
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator("#words")).to_have_value("red")
    page.locator("#words").press("Enter")
    assert ids(page)


def test_why_a_picture_of_ones_own_matches_shows_both_pictures(page, address, folder):
    page.goto(address)
    page.set_input_files("#file", folder / "images" / "5.png")
    ids(page)
    page.locator("#results .card").nth(2).get_by_role("button", name="Why does this match").click()
    expect(page.locator("#why .mapped img")).to_have_count(2)
    expect(page.locator("#why .mapped img").first).to_have_js_property("naturalWidth", 52)
    page.locator("#why-close").click()
    page.reload()  # the code alone is in the address
    ids(page)
    page.locator("#results .card").first.get_by_role("button", name="Why does this match").click()
    expect(page.locator("#why .hint", has_text="only its bits are known")).to_be_visible()
    expect(page.locator("#why .mapped img")).to_have_count(1)


def test_why_of_an_item_that_has_gone_gives_the_servers_words(page, address):
    page.goto(f"{address}?q=red")
    ids(page)
    page.route("**/explain", lambda route: route.fulfill(status=404, json={"error": "there is no item 'x'"}))
    page.locator("#results .card").first.get_by_role("button", name="Why does this match").click()
    expect(page.locator("#why [role=alert]")).to_have_text("there is no item 'x'")


def test_copies_stand_side_by_side(page, address, folder):
    page.goto(f"{address}duplicates.html")
    expect(page.locator("#status")).to_have_text("No two items are so near.")
    with closing(open_store(folder / "store")) as store:
        names = find_duplicates(store, 1, pictures=False)[0].ids[:2]
        first, second = (Path(str(item.metadata["image"])) for item in store.get(names))
    before = second.read_bytes()
    shutil.copyfile(first, second)
    page.locator("#radius").fill("2")
    page.locator("#radius").press("Enter")
    expect(page.locator("#status")).to_have_text("1 groups within 2 bits")
    expect(page.locator("#groups figcaption")).to_have_count(2)
    second.write_bytes(before)
