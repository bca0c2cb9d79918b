"""Jobs from configurations of Hugging Face models, by formula: nothing is downloaded, no library is asked."""
