"""Endings of image files, and of files that look like images but are not read."""

from channelhash.utils.image_files import HEIF_REMEDY, reads_heif

#: Why any other file is left out.
NOT_A_PICTURE = "not a picture"
HEIF_ENDINGS = frozenset((".heic", ".heif", ".hif"))
_ENDINGS = ".jpg .jpeg .jpe .jif .jfif .pjpeg .pjp .mpo .png .webp .bmp .gif .tif .tiff .avif .ppm .pgm .pbm .pnm"
#: Endings of the files that are read, in small letters.
IMAGE_ENDINGS = HEIF_ENDINGS.union(_ENDINGS.split())
_OTHERS = {
    "raw photographs are not read": ".3fr .arw .cr2 .cr3 .crw .dcr .dng .erf .fff .gpr .iiq .k25 .kdc .mef .mos .mrw "
    ".nef .nrw .orf .pef .raf .raw .rw2 .rwl .sr2 .srf .srw .x3f",
    "videos are not read": ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .webm .wmv",
    "pictures of this format are not read": ".ai .bpg .dcm .dds .emf .eps .exr .fits .hdr .ico .j2k .jp2 .jpx .jxl "
    ".jxr .psb .psd .qoi .svg .tga .wmf .xcf",
}
_PROBLEMS = {ending: problem for problem, endings in _OTHERS.items() for ending in endings.split()}


def ending_problem(ending: str) -> str:
    """Return why files of an ending, in small letters, are left out; empty if they are read.

    >>> ending_problem(".jpg"), ending_problem(".cr2"), ending_problem(".txt")
    ('', '.cr2: raw photographs are not read', 'not a picture')
    """
    if ending in HEIF_ENDINGS and not reads_heif():
        return HEIF_REMEDY
    if ending in IMAGE_ENDINGS:
        return ""
    return f"{ending}: {_PROBLEMS[ending]}" if ending in _PROBLEMS else NOT_A_PICTURE
