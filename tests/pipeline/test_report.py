"""hashtune report on a run that DVC built."""


def test_the_page_of_a_built_run(toy):
    toy.run("hashtune", "report")
    page = (toy.path / "build/report.html").read_text(encoding="utf-8")
    verdict = toy.report("gate")["verdict"]
    assert f"<strong>{verdict}</strong>" in page
    assert toy.report("train")["adapter_sha256"][:12] in page
    assert page.count("<article") == 13  # six test items and seven suite items
    toy.run("hashtune", "report", "HEAD", "--output", "head.html")
    head = (toy.path / "head.html").read_text(encoding="utf-8")
    assert head.replace("(HEAD)", "(workspace)") == page  # the cache holds what the folder holds


def test_no_other_file_is_replaced(toy):
    printed = toy.run("hashtune", "report", "--output", "params.yaml", code=2)
    assert "is no page of hashtune report" in printed
    printed = toy.run("hashtune", "report", "nowhere", "neither", code=2)
    assert printed.count("[no-run]") == 2
