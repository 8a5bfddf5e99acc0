"""The number of set bits of a word inside compiled loops."""

from llvmlite import ir
from numba.extending import intrinsic


@intrinsic
def popcount(typing_context, word):  # type: ignore[no-untyped-def]
    """Return the number of set bits of an unsigned word, of the same type, as one machine instruction."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.IntType(word.bitwidth)
        function = builder.module.declare_intrinsic("llvm.ctpop", [kind], ir.FunctionType(kind, [kind]))
        return builder.call(function, arguments)

    return word(word), generate
