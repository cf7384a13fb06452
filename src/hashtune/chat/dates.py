"""The pinned date, so that the clock never decides a token.

Templates read the date in two ways: the variable `date_string` ("26 Jul 2024") and the function
`strftime_now(format)`. transformers replaces functions passed as template arguments by a
placeholder, so the function is shadowed by a macro of the same name in front of the template.
"""

import datetime

MONTHS = "January February March April May June July August September October November December"
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"


def date_string(date: str) -> str:
    """The ISO date as templates print it: "2024-07-26" gives "26 Jul 2024", in every locale."""
    return _fill("%d %b %Y", date)


def with_frozen_clock(text: str, date: str) -> str:
    """The template with `strftime_now` frozen at midnight of the ISO date; others stay as they are.

    The macro ends in a newline, which Jinja's trim_blocks removes: the template starts a line.
    """
    if "strftime_now" not in text:
        return text
    steps = "".join(f" | replace('{key}', '{value}')" for key, value in _directives(date).items())
    unknown = "{% if '%' in out %}{{ raise_exception('no pinned value for ' + format) }}{% endif %}"
    macro = f"{{% macro strftime_now(format) %}}{{% set out = format{steps} %}}{unknown}"
    return f"{macro}{{{{ out }}}}{{% endmacro %}}\n{text}"


def _fill(pattern: str, date: str) -> str:
    for key, value in _directives(date).items():
        pattern = pattern.replace(key, value)
    return pattern


def _directives(date: str) -> dict[str, str]:
    day = datetime.date.fromisoformat(date)
    month, weekday = MONTHS.split()[day.month - 1], DAYS.split()[day.weekday()]
    return {
        "%Y": f"{day.year:04}",
        "%y": f"{day.year % 100:02}",
        "%m": f"{day.month:02}",
        "%-m": str(day.month),
        "%d": f"{day.day:02}",
        "%-d": str(day.day),
        "%e": f"{day.day:2}",
        "%B": month,
        "%b": month[:3],
        "%A": weekday,
        "%a": weekday[:3],
        "%j": f"{day.timetuple().tm_yday:03}",
        "%F": day.isoformat(),
        "%H": "00",
        "%M": "00",
        "%S": "00",
        "%I": "12",
        "%p": "AM",
    }
