from hypothesis import given
from hypothesis import strategies as st

from channelhash.lab.report.sanitize_html import clean
from lab.report.html_page import read_page

PIECES = (
    *("<table>", "</table>", "<td class='x'>", "</td>", "<tr><td>", "</tr>", "<br>", "<br/>", "1 < 2 & 3", "&lt;b>"),
    *("<script>", "</script>", "<style>p{}", "</style>", "<img src=http://a/b onerror=x>", "<a href='javascript:x'>"),
    *("</a>", "<svg/>", "<!-- c -->", "<title>t</title>", "<iframe src=//a>", "<b", '"', "<p style='x:url(a)' id=q>"),
)


def test_tables_come_through_whole():
    table = '<table class="t"><tr><th scope="col" colspan="2">a &amp; b</th></tr><tr><td><b>1.5</b></td></tr></table>'
    assert clean(table) == table


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_nothing_but_tables_and_words_comes_through_and_all_is_closed(pieces):
    cleaned = clean("".join(pieces))
    page = read_page(f"<style></style>{cleaned}")
    assert set(page.tags) <= {"style", "table", "td", "tr", "br", "b", "p"}
    assert not page.images
    assert not page.addresses
    assert not page.ids
    assert "<p style" not in cleaned
