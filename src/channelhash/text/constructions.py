"""Tables of the words that express dates and places in seven languages; `questions` looks them up.

Each table gives, by language, phrases separated by commas. ``(a|b)`` stands for either word, and
``(a|)`` for ``a`` or nothing. The value of a month, season, unit or count is its position in the
list. All phrases are lower-case and without accents, as `questions.fold_word` returns words.
"""

import re
from collections.abc import Mapping

#: Languages whose dates and places are understood.
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl")
#: Tables of the prepositions of dates. "of" and articles say the least.
SIDES = ("in", "of", "article", "before", "until", "since", "after", "between")

_TEXT = """
# Prepositions of a date: in 2019, of 2019, before it, up to its end, from its first day on, after
# its end, between it and another. An article alone is no preposition.
[in]
en: (taken|shot|made|) (in|on|during|from) (the|)
de: in, im, am, vom, aus (dem|der|), wahrend (des|der|), in (der|den|dem|diesem)
fr: en, au, aux, pendant, durant, dans (les|le|), lors (de|du)
es: en (el|la|los|), durante (el|la|los|)
it: in, nel, nella, nell', negli, nei, durante (il|la|l'|)
pt: em, durante (o|a|os|)
nl: in (de|het|), op, tijdens (de|het|), uit (de|het|)
[of]
en: of (the|)
de: von (dem|der|)
fr: de (la|l'|), d', du
es: de (la|los|), del
it: di, del, dello, della, dell', degli
pt: de, do, da, dos
nl: van (de|het|)
[article]
en: the
de: der, die, das, den, dem, des
fr: le, la, l', les
es: el, la, los
it: il, lo, la, l', gli, i
pt: o, a, os, na, no, nos
nl: de, het
[before]
en: (taken|shot|made|) (before|prior to|earlier than|older than|previous to) (the|)
de: vor (dem|der|), (alter|altere|alteren|fruher|eher) als (der|die|das|)
fr: avant (le|la|l'|les|), (anterieur|anterieure|anterieurs|anterieures) (a|au),
    plus (ancien|ancienne|anciens|anciennes|vieux|vieille|vieilles) que (le|la|l'|)
es: antes (de|del), antes de (la|el), (anterior|anteriores) (a|al),
    mas (antiguo|antigua|antiguos|antiguas|viejo|vieja|viejos|viejas) que (el|la|)
it: prima (di|del|dello|della|dell'),
    (anteriore|anteriori|precedente|precedenti) (a|al|alla|all'),
    piu (vecchio|vecchia|vecchi|vecchie) (di|del|della|dell')
pt: antes (de|do|da), (anterior|anteriores) (a|ao),
    mais (antigo|antiga|antigos|antigas|velho|velha|velhos|velhas) (que|do que) (o|a|)
nl: voor (de|het|), (ouder|oudere|eerder|vroeger) dan (de|het|)
[until]
en: (taken|shot|made|) (until|till|til|through|up to|up until|up to and including) (the|) (end of|)
de: bis, bis (zum|zur), bis (einschliesslich|inklusive), bis ende
fr: jusqu' (en|a|au), jusqu' (a|au) (la|l'|), jusque en, jusqu' (a|en) fin
es: hasta (el|la|), hasta (fines|finales) (de|del)
it: fino (a|al|alla|all'), sino (a|al|alla|all')
pt: ate (o|a|ao|)
nl: tot (de|het|), tot en met (de|het|)
[since]
en: since (the|), as of, from and including, starting (in|from|on), beginning (in|from|with)
de: seit (dem|der|), ab (dem|der|)
fr: depuis (le|la|l'|), des, a partir (de|du), a partir de (la|l')
es: desde (el|la|), a partir (de|del), a partir de (la|el)
it: dal, dalla, dall', sin dal, a partire (da|dal|dalla|dall')
pt: desde (o|a|), a partir (de|do|da)
nl: sinds (de|het|), vanaf (de|het|)
[after]
en: (taken|shot|made|) (after|later than|newer than|more recent than|younger than) (the|)
de: nach (dem|der|), (neuer|neuere|neueren|junger|jungere|jungeren|spater) als (der|die|)
fr: apres (le|la|l'|), (posterieur|posterieure|posterieurs|posterieures) (a|au),
    plus (recent|recente|recents|recentes|jeune|jeunes) que (le|la|l'|)
es: despues (de|del), despues de (la|el), (posterior|posteriores) (a|al),
    mas (reciente|recientes|nuevo|nueva|nuevos|nuevas) que (el|la|)
it: dopo (il|la|l'|),
    (successivo|successiva|successivi|successive|posteriore|posteriori) (a|al|alla|all'),
    piu (recente|recenti|nuovo|nuova|nuovi|nuove) (di|del|della|dell')
pt: (depois|apos) (de|do|da|), (posterior|posteriores) (a|ao),
    mais (recente|recentes|novo|nova|novos|novas) (que|do que) (o|a|)
nl: na (de|het|), (later|nieuwer|nieuwere|jonger|recenter) dan (de|het|)
[between]
en: between (the|)
de: zwischen (dem|der|)
fr: entre (le|la|l'|)
es: entre (el|la|)
it: (tra|fra) (il|la|l'|)
pt: entre (o|a|)
nl: tussen (de|het|)
# Words between two dates.
[to]
en: to, until, till, through, up to
de: bis (zum|zur|)
fr: a (la|l'|), au, jusqu' (a|en|au)
es: a, al, hasta (el|)
it: a, al, alla, all', ad, fino (a|al|alla)
pt: a, ao, ate (o|)
nl: tot (de|), tot en met (de|)
[and]
en: and
de: und
fr: et
es: y, e
it: e, ed
pt: e
nl: en
[or]
en: or
de: oder
fr: ou
es: o, u
it: o, oppure
pt: ou
nl: of
[onwards]
en: on, onwards, onward, forward, and (later|after|newer|up), or (later|newer)
de: an, aufwarts, und (spater|neuer), oder (spater|neuer)
fr: et apres, et plus tard, ou (apres|plus tard)
es: en adelante, y despues, o (despues|posterior)
it: in poi, in avanti, e oltre
pt: em diante, e depois
nl: en later, of later
[backwards]
en: and (before|earlier|older), or (before|earlier|older)
de: und (fruher|davor|alter), oder (fruher|alter)
fr: et avant, ou avant
es: y antes, o antes
it: e prima, o prima
pt: e antes, ou antes
nl: en eerder, of eerder
# Days that are counted back from today, and words that do so with a month, season or unit.
[relative today]
en: today
de: heute
fr: aujourd'hui
es: hoy
it: oggi
pt: hoje
nl: vandaag
[relative yesterday]
en: yesterday
de: gestern
fr: hier
es: ayer
it: ieri
pt: ontem
nl: gisteren
[relative last]
en: last
de: (letzte|vergangene|vorige)(|n|r|s|m)
fr: dernier, derniere
es: ultimo, ultima
it: ultimo, ultima
pt: ultimo, ultima
nl: vorig, vorige, afgelopen
[relative last after]
fr: dernier, derniere, passe, passee
es: pasado, pasada
it: scorso, scorsa, passato, passata
pt: passado, passada
[relative this]
en: this
de: diese(|n|r|s|m)
fr: ce, cet, cette
es: este, esta
it: questo, questa, quest'
pt: este, esta, neste, nesta
nl: deze, dit
[relative ago before]
de: vor
fr: il y a
es: hace
pt: ha, faz
[relative ago after]
en: ago
es: atras
it: fa
pt: atras
nl: geleden
[relative decade]
fr: (les|des|) annees
es: (los|) anos
it: (gli|) anni
pt: (os|) anos
nl: (de|) jaren
[relative tens]
en: thirties, forties, fifties, sixties, seventies, eighties, nineties
de: dreissiger, vierziger, funfziger, sechziger, siebziger, achtziger, neunziger
[relative of]
en: of (the|)
de: des, von
fr: de (l'|), d'
es: de (la|), del
it: di, del, dell'
pt: de, do
nl: van (het|)
# Prepositions of the first date of a range, in addition to those of `SIDES`.
[from]
en: from (the|)
de: von (dem|der|), vom, ab, seit
fr: de, du, d', depuis (le|)
es: de, del, desde (el|)
it: da, dal, dalla, dall'
pt: de, do, desde (o|)
nl: van (de|)
# Negations of the words behind them.
[not]
en: not, no, never, except (for|), excluding, exclude, without, other than, apart from,
    aside from, far from, away from, instead of, rather than, unlike, with the exception of,
    (all|any|anything|everything|anywhere) but, hide, skip, ignore, omit, leave out, minus, isn't,
    aren't, wasn't, weren't, don't, doesn't, didn't, cannot, can't, haven't, hasn't
de: nicht, kein, keine, keinen, keiner, nie, niemals, ohne, ausser, ausgenommen, statt, anstatt,
    alles bis auf, abgesehen von, mit ausnahme von, weit weg von
fr: pas, sans, sauf, hormis, excepte, jamais, aucun, aucune, non, loin (de|d'), a part,
    au lieu (de|d'), plutot que, a l'exception (de|d')
es: no, sin, excepto, salvo, menos, nunca, ningun, ninguna, lejos de, aparte de, en vez de,
    en lugar de, a excepcion (de|del), con excepcion (de|del)
it: non, senza, tranne, eccetto, mai, nessun, nessuna, lontano da, a parte, invece (di|del),
    ad eccezione (di|del)
pt: nao, sem, exceto, salvo, menos, nunca, nenhum, nenhuma, longe (de|do|da), em vez de,
    com excecao de
nl: niet, geen, zonder, behalve, nooit, ver van, afgezien van, in plaats van,
    met uitzondering van
# Negations of the words before them.
[denials behind]
en: not, never
de: nicht, nie
fr: pas, jamais
nl: niet, nooit
# Negations whose reach is unclear.
[unclear]
en: none, nothing, nobody, nowhere, neither, nor, no one, hardly, barely, instead
de: nichts, niemand, nirgends, weder, kaum
fr: rien, personne, ni, nulle
es: nada, nadie, ni, tampoco
it: niente, nulla, nessuno
pt: nada, ninguem, nem
nl: niets, niemand, nergens, noch, nauwelijks
# Spans that a date limits: three days before 2019, the first week of July.
[spans]
en: day, days, week, weeks, month, months, years, half, quarter, weekend, eve, night, morning,
    evening, hours, minutes, decade, rest, anniversary
de: tag, tage, woche, wochen, monat, monate, jahre, halfte, wochenende, vorabend, nacht, stunden,
    minuten, rest
fr: jour, jours, semaine, semaines, mois, ans, moitie, week-end, veille, nuit, heures, reste
es: dia, dias, semana, semanas, meses, anos, mitad, vispera, noche, horas, resto
it: giorno, giorni, settimana, settimane, mesi, anni, meta, vigilia, notte, ore, resto
pt: dia, dias, semana, semanas, meses, anos, metade, vespera, noite, horas, resto
nl: dag, dagen, week, weken, maand, maanden, jaren, helft, weekend, nacht, uren, rest
[but]
en: but
de: aber
fr: mais
es: pero
it: ma
pt: mas
nl: maar
# Words that continue the date before them.
[hanging]
en: or, nor, to, until, till, through, than, excluded
de: oder, bis, noch
fr: ou, jusqu', ni
es: o, hasta, ni
it: o, oppure, fino, ne
pt: ou, ate, nem
nl: of, tot, noch
[beyond]
en: outside (of|)
de: ausserhalb (von|)
fr: hors (de|d'), en dehors (de|d')
es: fuera de
it: fuori (da|di)
pt: fora (de|do|da)
nl: buiten
# Words that describe no photograph. They may stand between a negation and what it negates.
[photographs]
en: photo, photos, photograph, photographs, picture, pictures, pics, image, images, shots, all,
    my, our, the, those, ones, that, were, are, is, was, taken, shot, made
de: foto, fotos, bild, bilder, aufnahme, aufnahmen, alle, meine, unsere, die, aufgenommen
fr: photo, photos, photographies, image, images, cliches, mes, nos, les, toutes, prise, prises,
    qui, sont, de, d'
es: foto, fotos, imagen, imagenes, fotografias, mis, las, todas, tomada, tomadas, hechas, son
it: foto, immagine, immagini, fotografie, mie, le, tutte, scattata, scattate, fatte, sono
pt: foto, fotos, imagem, imagens, fotografias, minhas, as, todas, tirada, tiradas, sao
nl: foto, foto's, afbeelding, afbeeldingen, beelden, mijn, de, alle, gemaakt, genomen, zijn
[months]
en: (january|jan), (february|feb), march, (april|apr), may, (june|jun), (july|jul), (august|aug),
    (september|sept|sep), (october|oct), (november|nov), (december|dec)
de: (januar|janner|jan), (februar|feb), marz, (april|apr), mai, (juni|jun), (juli|jul),
    (august|aug), (september|sept), (oktober|okt), (november|nov), (dezember|dez)
fr: (janvier|janv), (fevrier|fevr), mars, avril, mai, juin, (juillet|juil), aout,
    (septembre|sept), (octobre|oct), (novembre|nov), (decembre|dec)
es: (enero|ene), (febrero|feb), marzo, abril, mayo, junio, julio, agosto,
    (septiembre|setiembre|sept), (octubre|oct), (noviembre|nov), (diciembre|dic)
it: gennaio, febbraio, marzo, aprile, maggio, giugno, luglio, agosto, settembre, ottobre,
    novembre, dicembre
pt: janeiro, fevereiro, marco, abril, maio, junho, julho, agosto, setembro, outubro, novembro,
    dezembro
nl: (januari|jan), (februari|feb), maart, (april|apr), mei, juni, juli, augustus,
    (september|sept), (oktober|okt), november, december
# Seasons of the northern hemisphere, from spring on. A winter belongs to the year it begins in.
[seasons]
en: spring, summer, (autumn|fall), winter
de: fruhling|fruhjahr, sommer, herbst, winter
fr: printemps, ete, automne, hiver
es: primavera, verano, otono, invierno
it: primavera, estate, autunno, inverno
pt: primavera, verao, outono, inverno
nl: lente|voorjaar, zomer, herfst|najaar, winter
# Day, week, month, year.
[units]
en: (day|days), (week|weeks), (month|months), (year|years)
de: (tag|tage|tagen), (woche|wochen), (monat|monats|monate|monaten), (jahr|jahres|jahre|jahren)
fr: (jour|jours), (semaine|semaines), mois, (an|ans|annee|annees)
es: (dia|dias), (semana|semanas), (mes|meses), (ano|anos)
it: (giorno|giorni), (settimana|settimane), (mese|mesi), (anno|anni)
pt: (dia|dias), (semana|semanas), (mes|meses), (ano|anos)
nl: (dag|dagen), (week|weken), (maand|maanden), (jaar|jaren)
# Numbers from one on.
[counts]
en: (a|an|one), two, three, four, five, six, seven, eight, nine, ten
de: (ein|einem|einer|eins), zwei, drei, vier, funf, sechs, sieben, acht, neun, zehn
fr: (un|une), deux, trois, quatre, cinq, six, sept, huit, neuf, dix
es: (un|una), dos, tres, cuatro, cinco, seis, siete, ocho, nueve, diez
it: (un|una|un'), due, tre, quattro, cinque, sei, sette, otto, nove, dieci
pt: (um|uma), (dois|duas), tres, quatro, cinco, seis, sete, oito, nove, dez
nl: een, twee, drie, vier, vijf, zes, zeven, acht, negen, tien
# Prepositions of places; then those with an article, which stand before countries.
[places after]
en: in, at, from, near
de: in, bei, nach, aus
fr: a, en, pres (de|d')
es: en, cerca de
it: a, ad, in, da, vicino a
pt: em, perto de
nl: in, te, uit, bij
[countries after]
en: (in|at|from|near) the
de: im, aus (der|dem|den), in (der|den|dem)
fr: au, aux, dans (le|la|les|l'), a (la|l')
es: en (el|la|los|las)
it: nel, nella, nell', negli, nei, dal, dalla
pt: no, na, nos, nas
nl: in (de|het), uit (de|het)
# Prepositions, articles and other words that change the meaning of the words behind them. They end
# the phrase before them, and show the language of a question.
[function words]
en: outside, a, an, the, this, that, his, her, its, their, with, of, at, by, for, over, under,
    behind, beside, through, into, onto, about, around, near, than, as, like, but, nor, or, to,
    while, almost, nearly, circa, early, late, mid, middle, beginning, end, start, more, less, is,
    are, was, were, who, until, till, since, before, after, between, from, in, on, only, and,
    versus
de: ausserhalb, der, die, das, ein, eine, einen, einem, einer, dem, den, mit, am, im, auf, von,
    vom, uber, unter, hinter, neben, fur, zu, zum, zur, als, wie, aber, und, um, gegen, etwa, ca,
    anfang, mitte, ende, bis, seit, ab, vor, nach, zwischen, aus, ist, nur, oder, an, bei
fr: hors, dehors, le, la, les, l', un, une, des, du, d', au, aux, avec, sur, sous, dans, par,
    pour, chez, vers, environ, debut, fin, mi, comme, que, mais, et, ou, jusqu', depuis, avant,
    apres, entre, est, sont, qui, devant, pres, seulement
es: fuera, el, la, los, las, un, una, con, en, del, al, por, para, sobre, bajo, hacia, como, que,
    pero, y, o, hasta, desde, antes, despues, entre, principios, finales, mediados, solo, es,
    cerca
it: fuori, il, lo, la, gli, l', un, una, con, nel, nella, nell', sul, sulla, di, del, della,
    dell', al, alla, per, su, tra, fra, verso, come, che, ma, e, o, fino, dal, da, prima, dopo,
    inizio, fine, meta, solo, sono, circa
pt: fora, o, os, as, um, uma, com, em, no, na, nos, nas, do, da, dos, ao, para, por, sobre, como,
    que, mas, e, ou, ate, desde, antes, depois, apos, entre, inicio, fim, meados, cerca
nl: buiten, de, het, een, met, op, aan, van, voor, over, onder, achter, naast, naar, als, dan,
    maar, en, of, tot, sinds, vanaf, na, tussen, rond, begin, eind, midden, circa, alleen, bij,
    uit
[articles]
en: a, an, the, that, his, her, its, their, who
de: der, die, das, ein, eine, einen, einem, einer, dem, den
fr: le, la, les, l', un, une, des, qui
es: el, la, los, las, un, una, que
it: il, lo, la, gli, l', un, una, che
pt: o, os, as, um, uma, que
nl: de, het, een, die
"""
#: Words of a language that mean something else in others, and in which. They count only if other
#: words of the question show the language.
AMBIGUOUS = {
    "fr": {"des": "de fr", "hier": "de nl", "mars": "en", "a": "en es it pt"},
    "es": {"a": "en", "o": "pt"},
    "it": {"o": "pt", "estate": "en", "a": "en fr es pt", "da": "de nl"},
    "pt": {
        "ate": "en",
        "da": "it de",
        "marco": "it es",
        "do": "en",
        "no": "en es it",
        "a": "en fr it",
        "ha": "en",
        "nos": "es",
    },
    "nl": {"lente": "es it pt", "te": "es it", "of": "en"},
}


def _read_tables(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return table -> language -> phrases."""
    tables: dict[str, dict[str, str]] = {}
    without_comments = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    for row in without_comments.replace("\n    ", " ").split("\n"):
        if row.startswith("["):
            table = tables.setdefault(row.strip("[]"), {})
        elif row:
            language, phrases = row.split(": ", 1)
            table[language] = phrases
    return tables


#: Table -> language -> phrases.
TABLES = _read_tables(_TEXT)
