"""From a folder of code to an agent that runs elsewhere: made trainable, packed, put on AWS."""
