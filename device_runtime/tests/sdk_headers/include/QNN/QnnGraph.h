#include "facts.h"
