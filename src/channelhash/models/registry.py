"""The registry of models. A new model is one new file and one line here."""

from channelhash.models.aligned import build_aligned_branches, create_aligned_model
from channelhash.models.cliphash import build_cliphash_branches, create_cliphash_model
from channelhash.models.fitted import build_fitted_branches, create_fitted_model
from channelhash.models.hash_model import ModelKind
from channelhash.models.heads import build_features_branches, create_features_model
from channelhash.models.small import build_small_branches, create_small_model
from channelhash.models.tdsrdh import build_tdsrdh_branches, create_tdsrdh_model

#: name in a configuration -> how to create it for new data and build it again from a saved architecture.
MODELS: dict[str, ModelKind] = {
    "small": ModelKind(create_small_model, build_small_branches),
    "features": ModelKind(create_features_model, build_features_branches),
    "aligned": ModelKind(create_aligned_model, build_aligned_branches),
    "tdsrdh": ModelKind(create_tdsrdh_model, build_tdsrdh_branches),
    "cliphash": ModelKind(create_cliphash_model, build_cliphash_branches),
    "fitted": ModelKind(create_fitted_model, build_fitted_branches),
}
