"""Names of namespaces, sections, magic words and disambiguation templates in many Wikipedias, in lower case.

Sources: MediaWiki's own message files (languages/messages/Messages*.php) and articles of the Wikipedias.
"""

import re


def _words(text: str) -> frozenset[str]:
    """Split text at white space."""
    return frozenset(text.split())


def _names(text: str) -> frozenset[str]:
    """Split text at commas."""
    return frozenset(" ".join(name.split()) for name in text.split(","))


FILES = _words("""
file image media datei bild medium файл зображення изображение медиа медіа fichier archivo imagen ficheiro
imagem immagine bestand afbeelding plik grafika fil tiedosto kuva soubor obrázok súbor fájl kép dosya resim
slika slika datoteka слика датотека картинка выява file fitxer imatge fișier imagine αρχείο εικόνα 文件 檔案
图像 圖像 ファイル 画像 파일 그림 ملف صورة پرونده تصویر קובץ תמונה चित्र ছবি చిత్రం படிமம் ไฟล์ ภาพ hình berkas
gambar gailuf fitxategi irudi dosiero fail pilt attēls vaizdas skrá mynd
""") | {"tập tin"}
"""Namespaces whose links are pictures with captions."""

CATEGORIES = _words("""
category kategorie категорія категория catégorie categoría categoria categorie kategoria kategori luokka
kategória kategorija категорија катэгорыя κατηγορία 分类 分類 カテゴリ 분류 تصنيف رده קטגוריה श्रेणी বিষয়শ্রেণী
పక్షం பகுப்பு หมวดหมู่ kategorio kategoori kategória flokkur kategoriya санат
""") | {"thể loại", "вікіпедія:категорії"}

NOT_LANGUAGES = frozenset({"doi", "hdl", "irc", "rfc", "voy", "wmf", "tsl", "isbn", "pmid"})
"""Short link prefixes that look like a language code but are not."""

REDIRECTS = _words("""
redirect weiterleitung перенаправлення перенаправление redirection redirección redirecionamento rinvia
doorverwijzing omdirigering ohjaus uudelleenohjaus přesměruj presmeruj átirányítás yönlendirme yönlendi̇rme
preusmjeri преусмери пренасочување перанакіраванне redirecció redirectare ανακατευθυνση patrz przekieruj tam
重定向 転送 リダイレクト 넘겨주기 تحويل تغییرمسیر הפניה अनुप्रेषित पुनर्निर्देशित đổi alih birzuzendu suuna
tilvísun
""")

LINK_SECTIONS = _names("""
references, external links, see also, further reading, notes, bibliography, sources, footnotes, citations,
notes and references, works cited, literature, discography, filmography, publications, selected works,
selected bibliography, general references, explanatory notes, reading list, links, awards, gallery,
citations and notes, notes and citations, references and notes, references and sources,
references and further reading, notes and sources, sources and further reading, reference literature,
standard works, cited works, general sources, primary sources, secondary sources, other sources,
additional reading, suggested reading, recommended reading, bibliographies, selected publications,
published works, textbooks, websites, einzelnachweise, weblinks, siehe auch, literatur, quellen, anmerkungen,
fußnoten, werke, werke (auswahl), schriften, schriften (auswahl), diskografie, filmografie, примітки,
посилання, див. також, дивіться також, джерела, література, виноски, бібліографія, твори, фільмографія, праці,
зовнішні посилання, галерея, примечания, ссылки, см. также, литература, источники, библиография, сочинения,
фильмография, notes et références, références, liens externes, voir aussi, bibliographie, articles connexes,
notes, lien externe, annexes, filmographie, discographie, œuvres, publications, referencias, enlaces externos,
véase también, bibliografía, notas, fuentes, filmografía, discografía, obras, referências, ligações externas,
ver também, bibliografia, notas e referências, note, collegamenti esterni, voci correlate, altri progetti,
opere, referenties, externe links, externe link, zie ook, literatuur, bronnen, bronnen,
noten en/of referenties, przypisy, linki zewnętrzne, zobacz też, uwagi, referenser, externa länkar, se även,
källor, noter, lähteet, aiheesta muualla, katso myös, reference, externí odkazy, související články,
literatura, hivatkozások, jegyzetek, források, további információk, lásd még, kaynakça, dış bağlantılar,
ayrıca bakınız, referințe, legături externe, vezi și, παραπομπές, εξωτερικοί σύνδεσμοι, δείτε επίσης,
βιβλιογραφία, 参考文献, 外部链接, 外部連結, 参见, 參見, 注释, 註釋, 参考资料, 參考資料, 脚注, 関連項目,
外部リンク, 出典, 関連書籍, 각주, 외부 링크, 같이 보기, 참고 문헌, المراجع, مراجع, وصلات خارجية, انظر أيضا,
منابع, پیوند به بیرون, جستارهای وابسته, הערות שוליים, קישורים חיצוניים, ראו גם, सन्दर्भ, इन्हें भी देखें,
बाहरी कड़ियाँ, tham khảo, liên kết ngoài, xem thêm, referensi, pranala luar, lihat pula
""")
"""Headings of sections whose lists are links or books."""

DISAMBIGUATIONS = _names("""
disambiguation, disambig, disamb, dab, disambiguation page, disambiguation cleanup, disambig-cleanup, disam,
hndis, human name disambiguation, hndis-cleanup, geodis, place name disambiguation, geo-dis,
airport disambiguation, callsigndis, call sign disambiguation, chinese title disambiguation, dab cleanup,
disambig-plants, genus disambiguation, hospital disambiguation, letter-number combination disambiguation,
letter disambiguation, mathematical disambiguation, mathdab, mil-unit-dis, music disambiguation,
number disambiguation, numberdis, opus disambiguation, phonetics disambiguation, road disambiguation, roaddis,
school disambiguation, schooldis, species latin name disambiguation,
species latin name abbreviation disambiguation, station disambiguation, synagogue disambiguation,
taxonomic authority disambiguation, taxonomy disambiguation, wikipedia disambiguation, biology disambiguation,
church disambiguation, county disambiguation, place disambiguation, begriffsklärung, bkl, неоднозначність,
багатозначність, багатозначні терміни, disambigua, неоднозначность, многозначность, homonymie, toponymie,
patronymie, paronymie, arrondissements homonymes, unités homonymes, desambiguación, desambiguacion,
desambiguação, desambig, desambiguació, dp, doorverwijspagina, ujednoznacznienie, förgrening, gren, gaffel,
flertydig, peker, täsmennyssivu, täsmennys, rozcestník, rozlišovacia stránka, egyért, egyértelműsítő lap,
egyértelműsítőlap, anlam ayrımı, anlam ayrım, dezambiguizare, αποσαφήνιση, вишезначна одредница, вишезначна,
razdvojba, višeznačna odrednica, неадназначнасць, apartigilo, täpsustus, täpsustuslehekülg, nuorodinis,
nozīmju atdalīšana, argipen, homónimos, aðgreining, định hướng, trang định hướng, disambiguasi, 曖昧さ回避,
aimai, 人名の曖昧さ回避, 地名の曖昧さ回避, 消歧义, 消歧義, 消歧义页, 消歧義頁, 同名條目, 동음이의,
동음이의어 문서, توضيح, صفحة توضيح, ابهام‌زدایی, ابهام زدایی, פירושונים, बहुविकल्पी, बहुविकल्पी शब्द, แก้กำกวม,
դիմակ, ბუნდოვანი, айрық, çoxmənalı, дизамбиг
""")
"""Templates that mark a disambiguation page.

Templates that only link to such a page ("other uses", "Begriffsklärungshinweis") are not included.
"""

MEANINGS = re.compile(
    r"\((?:disambiguation|begriffsklärung|значення|значения|homonymie|desambiguación|desambiguação|disambigua"
    r"|doorverwijspagina|ujednoznacznienie|olika betydelser|täsmennyssivu|rozcestník|egyértelműsítő lap|"
    r"anlam ayrımı|dezambiguizare|αποσαφήνιση|пояснение|вишезначна одредница|曖昧さ回避|消歧义|消歧義|동음이의|توضيح"
    r"|ابهام‌زدایی|פירושונים|định hướng|disambiguasi)\)$"
)
"""Endings of the titles of disambiguation pages, in lower case."""
