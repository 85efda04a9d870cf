# SPDX-License-Identifier: Apache-2.0
"""Languages told on the Universal Declaration of Human Rights: the numbers of docs/explanation/languages.md."""

import pytest

from tokenmill.tokenizer.languages import identify

pytestmark = pytest.mark.parity

# Versions of the collection in languages that are told apart, and the code that is right.
VERSIONS = dict(
    pair.split("=")
    for pair in """
    afr=af amh=am arb=ar azj_latn=az bel=be bul=bg ben=bn bre=br bos_latn=bs cat=ca ces=cs cym=cy dan=da deu_1996=de
    deu_1901=de ell_monotonic=el ell_polytonic=el eng=en epo=eo spa=es est=et eus=eu pes_1=fa pes_2=fa fin=fi fra=fr
    fri=fy gle=ga gla=gd glg=gl guj=gu hau_NG=ha heb=he hin=hi hrv=hr hat_kreyol=ht hun=hu hye=hy ind=id ibo=ig
    isl=is ita=it jpn=ja jav=jv kat=ka kaz=kk khm=km kan=kn kor=ko kir=ky lat=la lug=lg lin=ln lao=lo lit=lt lav=lv
    plt=mg mkd=mk mal=ml khk=mn mar=mr mya=my nep=ne nld=nl nob=no pan=pa pol=pl pbu=ps por_BR=pt por_PT=pt quz=qu
    ron_2006=ro rus=ru san=sa slk=sk slv=sl som=so als=sq srp_cyrl=sr swe=sv swh=sw tam=ta tha=th tgl=tl tur=tr
    uig_arab=ug ukr=uk urd=ur uzn_latn=uz uzn_cyrl=uz vie=vi xho=xh yor=yo cmn_hans=zh cmn_hant=zh zul=zu ace=ace
    bcl=bcl nso=nso kin=rw sme=se sna=sn sot=st fao=fo ltz=lb wln=wa mlt=mt nno=nn lnc=oc tgk=tg tuk_latn=tk tat=tt
    vec=vec gug=gug pcm=pcm srp_latn=sr bod=bo dzo=dz div=dv chr_cased=chr iii=ii tir=ti ydd=yi
""".split()
)


def shares(texts: list[str], codes: list[str]) -> tuple[float, float]:
    """Returns which shares of texts are right, and `und`."""
    found = identify(texts).codes.to_pylist()
    right = sum(code == wanted for code, wanted in zip(found, codes, strict=True))
    return right / len(texts), found.count("und") / len(texts)


def test_declarations_are_in_their_languages(declarations: dict[str, str]) -> None:
    right, _ = shares([declarations[name] for name in VERSIONS], [*VERSIONS.values()])
    assert len({*VERSIONS.values()}) > 110
    assert right > 0.94


@pytest.mark.parametrize(
    ("least", "most", "right", "unknown"),
    [(200, 10**6, 0.96, 0.01), (100, 200, 0.95, 0.01), (40, 100, 0.93, 0.02), (15, 40, 0.85, 0.13)],
)
def test_paragraphs_are_in_their_languages_or_unknown(
    declarations: dict[str, str], least: int, most: int, right: float, unknown: float
) -> None:
    lines = [(line.strip(), code) for name, code in VERSIONS.items() for line in declarations[name].splitlines()]
    chosen = [(line, code) for line, code in lines if least <= len(line) < most]
    found = shares(*map(list, zip(*chosen, strict=True)))
    assert found[0] > right
    assert found[1] < unknown


def test_languages_that_are_not_known_are_unknown_at_times_only(declarations: dict[str, str]) -> None:
    # What docs/explanation/languages.md warns of: most of them get the nearest language that is known.
    found = identify([text for name, text in sorted(declarations.items()) if name not in VERSIONS])
    assert 0.1 < found.codes.to_pylist().count("und") / len(found) < 0.2
