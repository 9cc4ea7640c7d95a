#include "../facts.h"
