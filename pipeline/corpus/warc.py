"""Read the plain text of web archives, such as the WET files of Common Crawl: one document per web page."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.files.opening import Opened, lines
from pipeline.text.documents import Dropped, Record, dropped, one_line
from pipeline.text.sentences import is_language_code

BOM = b"\xef\xbb\xbf"
VERSION_LINE = re.compile(r"WARC/\d+\.\d+\s*")
TYPE = re.compile(rb"^WARC-Type:[ \t]*(\w+)", re.IGNORECASE | re.MULTILINE)
TEXT_TYPES = ("conversion", "resource")
"""Types of records that may hold text. In WET files, a conversion is the text that was extracted from a page."""
WITHOUT_PAGES = ("warcinfo", "request", "metadata", "revisit")
"""Types of records about the archive and its downloads."""
WITH_PAGES = ("response", "continuation", *TEXT_TYPES)
"""All other types of WARC 1.1."""
LONGEST_PAGE = 50_000_000
"""Maximum characters of a page, to bound memory. A longer page counts as broken."""
CODES = (
    "aar:aa abk:ab afr:af aka:ak amh:am ara:ar arg:an asm:as ava:av ave:ae aym:ay aze:az bak:ba bam:bm bel:be "
    "ben:bn bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chu:cu chv:cv cor:kw cos:co cre:cr "
    "cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fas:fa fij:fj fin:fi "
    "fra:fr fry:fy ful:ff gla:gd gle:ga glg:gl glv:gv grn:gn guj:gu hat:ht hau:ha hbs:sh heb:he her:hz hin:hi "
    "hmo:ho hrv:hr hun:hu hye:hy ibo:ig ido:io iii:ii iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it jav:jv "
    "jpn:ja kal:kl kan:kn kas:ks kat:ka kau:kr kaz:kk khm:km kik:ki kin:rw kir:ky kom:kv kon:kg kor:ko kua:kj "
    "kur:ku lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg mah:mh mal:ml mar:mr mkd:mk mlg:mg "
    "mlt:mt mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl nno:nn nob:nb nor:no "
    "nya:ny oci:oc oji:oj ori:or orm:om oss:os pan:pa pli:pi pol:pl por:pt pus:ps que:qu roh:rm ron:ro run:rn "
    "rus:ru sag:sg san:sa sin:si slk:sk slv:sl sme:se smo:sm sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc "
    "srp:sr ssw:ss sun:su swa:sw swe:sv tah:ty tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn "
    "tso:ts tuk:tk tur:tr twi:tw uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi "
    "yor:yo zha:za zho:zh zul:zu"
)
TWO_LETTERS = {pair[:3]: pair[4:] for pair in CODES.split()}
"""Codes of languages with three letters (ISO 639-3), which web archives use -> codes with two letters."""


@dataclass(frozen=True, kw_only=True)
class ArchiveRecord:
    """A record of an archive: its header fields with names in lower case, and the lines of its content."""

    fields: dict[str, str]
    body: list[str]
    sound: bool
    """False for lines outside of records, a record that ends in its header, and one longer than LONGEST_PAGE."""


def is_warc(name: str, head: bytes) -> bool:
    """Whether a file is a web archive, by its first bytes."""
    return head.removeprefix(BOM).startswith(b"WARC/")


def is_warc_without_text(name: str, head: bytes) -> bool:
    """Whether a file is a web archive whose first records have no text: they are pages in HTML, or data about pages."""
    kinds = {kind.decode().lower() for kind in TYPE.findall(head)}
    return is_warc(name, head) and bool(kinds - {"warcinfo"}) and not kinds & set(TEXT_TYPES)


def read_warc(file: Opened) -> Iterator[Record | Dropped]:
    """Yield the pages of a web archive that are plain text, without the headers of the records.

    A page in HTML is dropped. A page's language is the first that its record states.
    """
    for number, found in enumerate(_records(lines(file.blocks))):
        kind = found.fields.get("warc-type", "").lower()
        if found.sound and kind in WITHOUT_PAGES:
            continue
        address = one_line(found.fields.get("warc-target-uri", "").strip("<>"))
        id = f"{file.name}:{number}:{address}" if address else f"{file.name}:{number}"
        if not found.sound or kind not in WITH_PAGES:
            yield dropped(id, "broken record", " ".join(found.body[:1]).strip())
        elif kind not in TEXT_TYPES or not _is_plain(found.fields):
            yield dropped(id, "web page not text", " ".join(found.body[:9]))
        else:
            yield Record(id=id, parent=id, title="", paragraphs=found.body, language=_language_of(found.fields))


def _is_plain(fields: dict[str, str]) -> bool:
    """Whether a record's content is plain text, by its content type."""
    return fields.get("content-type", "text/plain").lower().startswith("text/plain")


def _language_of(fields: dict[str, str]) -> str | None:
    """Return the code of a record's main language; None if the record does not state it."""
    code = fields.get("warc-identified-content-language", "").split(",")[0].strip().lower()
    return TWO_LETTERS.get(code, code if is_language_code(code) else None)


def _records(text: Iterable[str]) -> Iterator[ArchiveRecord]:
    """Yield the records of an archive; text before the first record is yielded as a record that is not sound.

    A record begins at a line "WARC/1.0" after a blank line, and not at the stated length of the record before it:
    lengths are those of the original bytes, and a wrong one would shift all later records.
    """
    fields: dict[str, str] = {}
    body: list[str] = []
    in_header, started, after_blank, size = False, False, True, 0
    for line in text:
        if after_blank and line.startswith("WARC/") and VERSION_LINE.fullmatch(line):
            if started or any(map(str.strip, body)):
                yield ArchiveRecord(fields=fields, body=body, sound=started and size <= LONGEST_PAGE)
            fields, body, in_header, started, size = {}, [], True, True, 0
            continue
        after_blank = not line.strip()
        if not in_header:
            size += len(line) + 1
            if size <= LONGEST_PAGE:
                body.append(line)
        elif after_blank:
            in_header = False
        else:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
    if started or any(map(str.strip, body)):
        yield ArchiveRecord(fields=fields, body=body, sound=started and not in_header and size <= LONGEST_PAGE)
