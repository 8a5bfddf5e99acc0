"""What is taken from the similarity of texts and hubs: items that are near to nearly all texts.

An item x may be near to any text, whatever it says (Radovanović et al., "Hubs in Space", JMLR
2010). How near it is to the texts c of a bank is taken from its similarity s to a question q:

    s(q, x) − λ T log mean_c exp(s(c, x) / T)

With λ = 1 this orders by the inverted softmax (Smith et al., "Offline Bilingual Word Vectors,
Orthogonal Transformations and the Inverted Softmax", ICLR 2017). Its bank of other texts than the
questions is that of querybank normalisation (Bogolin et al., "Cross Modal Retrieval with Querybank
Normalisation", CVPR 2022); dual softmax (Cheng et al., "Improving Video-Text Retrieval by
Multi-Stream Corpus Alignment and Dual Softmax Loss", 2021) takes the questions of a test instead.
It is one number an item, which is known before anybody asks.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: λ: more helps where an encoder has learned nothing of the kind (Flickr8k), and costs where it has
#: (MS-COCO), and the names of objects.
_STRENGTH = 0.5
#: Items at a time, which bounds memory.
_ITEMS = 1024
#: Decimals that are kept: the last ones would depend on how many items are computed together.
_DECIMALS = 4


@dataclass(frozen=True, eq=False)
class Bank:
    """Texts that items are compared with before anybody asks.

    Attributes:
        vectors: ``(m, d)``, what texts of other items are compared by; kept in half precision.
        temperature: T, in units of similarity.

    >>> bank = Bank(np.eye(2, dtype=np.float16), temperature=0.1)
    >>> [f"{excess:.2f}" for excess in bank.excesses(np.array([[1.0, 0.0], [0.6, 0.6]]))]
    ['0.47', '0.30']
    """

    vectors: NDArray[np.float16]
    temperature: float

    def excesses(self, vectors: NDArray[Any]) -> NDArray[np.float32]:
        """Return what is taken from the similarities of texts and items ``(n, d)``, ``(n,)``."""
        texts = self.vectors.astype(np.float32).T
        parts = [
            self._nearness(np.asarray(vectors[start : start + _ITEMS], np.float32) @ texts)
            for start in range(0, len(vectors), _ITEMS)
        ]
        nearness = np.concatenate([np.empty(0, np.float32), *parts])
        return np.round(_STRENGTH * nearness, _DECIMALS).astype(np.float32)

    def _nearness(self, similarities: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return T log mean exp(s / T) of each row."""
        largest = similarities.max(axis=1, keepdims=True)
        shares = np.exp((similarities - largest) / self.temperature).mean(axis=1)
        return np.asarray(largest[:, 0] + self.temperature * np.log(shares), np.float32)
