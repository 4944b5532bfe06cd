"""Abbreviations that sentencex does not know, by language, without their full stop.

This file holds data only: add new abbreviations here.
"""

CYRILLIC = "А Б В Г Ґ Д Ђ Ѓ Е Ё Є Ж З Ѕ И І Ї Й Ј К Л Љ М Н Њ О П Р С Т Ћ Ќ У Ў Ф Х Ц Ч Џ Ш Щ Э Ю Я"
INITIALS = {
    **dict.fromkeys(["ba", "be", "bg", "cv", "kk", "ky", "mk", "mn", "os", "ru", "sr", "tg", "tt", "uk"], CYRILLIC),
    "el": "Α Β Γ Δ Ε Ζ Η Θ Ι Κ Λ Μ Ν Ξ Ο Π Ρ Σ Τ Υ Φ Χ Ψ Ω",
    "vi": "Đ",
}
"""Capital letters that may be initials, by language; sentencex itself knows the initials A to Z in every language."""
NEVER_LAST = {
    "ar": "د",
    "bg": "бл жк имп кн",
    "el": (
        "αγ αθ αλ αρ αριθ αρθ βλ γεωργ δημ δρ εικ εκδ επιμ ιω καθ κεφ κκ κος κων λεωφ μτφρ νικ πιν πρβλ σελ τηλ τομ χρ"
    ),
    "hi": "डॉ पं प्रो श्री",
    "hu": "dr id ifj ill özv prof",
    "mk": "акад бул ген инж проф ул",
    "ro": "art bd dr dvs fig ing nr pag prof str vol",
    "sr": "акад бр бул ген инж мр проф ул",
    "sv": "dr fig kap nr prof",
    "tr": "bkz doç dr öğr örn prof sn şti yrd",
    "uk": "акад вул генер див дж заст інж кн оп пл проф пров св см",
    "vi": "bs cn ds đt gs ks kts ls nxb pgs tp tr ts tt ths tx vd",
}
"""Abbreviations that never end a sentence: titles, and words that always stand before a number or a name."""
SELDOM_LAST = {
    "be": "гл гг н нар напр р стст см т тыс э",
    "bg": (
        "авг англ апр дек др е зап изт исп ит ко лат млн млрд н нем ноем обл обр общ окт ок пр рус сев септ сл тур "
        "февр фр хил хр юг яну"
    ),
    "el": (
        "αι απρ αυγ γερμ γρ δεκ δευτ δηλ δισ δρχ εκ εκατ ιαν ιουλ ιουν ισπ ιταλ ά κιλ κλπ κτλ λεπ λ λπ μ μαρ μαΐ "
        "νοε οκτ σεπ στρ στρεμ τ τρισ φεβ χ χγρ χιλ χλγ χλμ χμ"
    ),
    "en": (
        "approx art cent ch chron chs cir circa col cor cu dan deut div eccl eph eq eqs esq est exod ezek figs ft gal "
        "gent hab hag heb "
        "hos hrs isa jas jer josh judg kgs lat lb lbs lem lev lib mal matt mic min mins mons mss neh num obad obt "
        "oz pbk pet prop prov ps rev rom sam secs sect sg sq sqmi temp thes thess thm tim tit vol vols yds zech ii "
        "iii iv "
        "vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix xx xxi xxii xxiii xxiv xxv c"
    ),
    "hr": "dr engl god itd lat npr nr odn sl st str tal tj tzv usp",
    "hu": "aug dec febr jan jún júl kb máj márc nov okt old pl sz szept szt stb ún vö",
    "mk": "год др н нпр о сл стр т тн х",
    "ro": "aprox aug cca dec e etc ex febr ian lit mil n nov oct ob sec sept r",
    "ru": "англ букв греч доп итал лат напр нем обр франц эл э",
    "sl": "angl dr ipd itd lat npr oz st str t tj",
    "sr": "год др ел итд л лат н нпр о одн сл стр т тзв тј хр",
    "sv": "bl ca dvs etc ex exkl forts inkl jfr kl m o osv s t tex ung",
    "tr": "bk cad krş mah s sf sok vb vd vs yy",
    "uk": (
        "австр англ бл вид грец гр друк е зах зб зх ім ін індик інш іст ісп італ кол кін лат млн млрд напр нар нім "
        "н обл осн пд пн пол поч прибл р рис рос рр ред сер сх сторіч ст стор т табл тис тт укр франц фр хв год "
        "числ"
    ),
    "vi": "cs k th v x",
}
"""Abbreviations that do not end a sentence if a lower-case letter or a digit follows."""
