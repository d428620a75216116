"""relnet's models in transformers: importing this package makes the Auto classes know them.

    import relnet.hf
    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    model = AutoModelForImageClassification.from_pretrained(FOLDER)

Needs the extra hf: pip install 'relnet[hf]'.
"""

try:
    import transformers
except ImportError as error:
    raise ImportError("relnet.hf needs transformers; install it: pip install 'relnet[hf]'") from error

from relnet.hf.cache import RelnetCache
from relnet.hf.config import RelnetConfig
from relnet.hf.folder import export, export_images, load, tokenizer_of
from relnet.hf.images import RelnetForImageClassification, RelnetImageConfig, RelnetImageProcessor
from relnet.hf.model import RelnetForCausalLM
from relnet.hf.tokenizers import byte_tokenizer, letter_tokenizer

transformers.AutoConfig.register(RelnetConfig.model_type, RelnetConfig, exist_ok=True)
transformers.AutoModelForCausalLM.register(RelnetConfig, RelnetForCausalLM, exist_ok=True)
transformers.AutoConfig.register(RelnetImageConfig.model_type, RelnetImageConfig, exist_ok=True)
transformers.AutoModelForImageClassification.register(RelnetImageConfig, RelnetForImageClassification, exist_ok=True)
transformers.AutoImageProcessor.register(RelnetImageConfig, RelnetImageProcessor, exist_ok=True)

__all__ = [
    "RelnetCache",
    "RelnetConfig",
    "RelnetForCausalLM",
    "RelnetForImageClassification",
    "RelnetImageConfig",
    "RelnetImageProcessor",
    "byte_tokenizer",
    "export",
    "export_images",
    "letter_tokenizer",
    "load",
    "tokenizer_of",
]
