/*
 * layout.c - see layout.h.
 *
 * Dividing, by example: 100 units of memory, classes A (10 chunks of 16) and B (4 chunks of 10), at least one slot each.
 *   everything would cost 200; a half of each class is wanted:  A 5 × 16 = 80,  B 2 × 10 = 20.
 * A class whose share is below its least gets its least, and the others share what is left.
 */
#include "residency/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

__extension__ typedef unsigned __int128 wide;

/* One chunk while sorting. */
typedef struct sort_key {
	uint64_t room;
	uint32_t class_index;
	uint32_t group;
	uint32_t chunk;
} sort_key;

static int by_room_falling(const void *left, const void *right)
{
	const sort_key *a = left, *b = right;

	if (a->room != b->room)
		return a->room > b->room ? -1 : 1;
	return a->chunk < b->chunk ? -1 : a->chunk > b->chunk;
}

static int by_class_and_group(const void *left, const void *right)
{
	const sort_key *a = left, *b = right;

	if (a->class_index != b->class_index)
		return a->class_index < b->class_index ? -1 : 1;
	return a->group < b->group ? -1 : a->group > b->group;
}

static int fill_keys(sort_key *keys, const weir_chunk *chunks, uint32_t count, uint32_t alignment, weir_error *error)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t shift = chunks[i].offset & (alignment - 1);
		uint64_t end;

		if (chunks[i].bytes == 0)
			return weir_fail(error, WEIR_EINVAL, NULL, chunks[i].offset, 0, "chunk %u has no bytes", i);
		if (__builtin_add_overflow(chunks[i].offset, chunks[i].bytes, &end) || end > (uint64_t)INT64_MAX - alignment)
			return weir_fail(error, WEIR_EINVAL, NULL, chunks[i].offset, 0, "end of chunk %u wraps", i);
		keys[i].room = (shift + chunks[i].bytes + alignment - 1) & ~((uint64_t)alignment - 1);
		keys[i].group = chunks[i].group;
		keys[i].chunk = i;
	}
	return 0;
}

/* How much smaller than the largest a chunk's room may be and still share its class.  Chunks of one size differ by one
 * alignment unit, depending on where they start: those stay together unless the chunks are small. */
static uint64_t tolerance(uint64_t largest, uint32_t alignment)
{
	uint64_t percent = largest / 100 * 3;

	return percent < alignment && largest / 16 >= alignment ? alignment : percent;
}

static void form_classes(weir_layout *layout, sort_key *keys)
{
	uint64_t largest = 0;
	uint32_t classes = 0;

	for (uint32_t i = 0; i < layout->chunks_count; i++) {
		if (classes == 0 || largest - keys[i].room > tolerance(largest, layout->alignment)) {
			largest = keys[i].room;
			layout->classes[classes++] = (weir_size_class){.slot_bytes = largest};
		}
		layout->classes[classes - 1].chunks_count++;
		keys[i].class_index = classes - 1;
	}
	layout->classes_count = classes;
}

static void form_sets(weir_layout *layout, const sort_key *keys)
{
	uint32_t sets = 0;

	for (uint32_t i = 0; i < layout->chunks_count; i++) {
		if (i == 0 || by_class_and_group(&keys[i - 1], &keys[i]) != 0)
			layout->set_class[sets++] = keys[i].class_index;
		layout->chunk_set[keys[i].chunk] = sets - 1;
		layout->set_chunks[sets - 1]++;
	}
	layout->sets_count = sets;
}

int weir_layout_make(weir_layout *layout, const weir_chunk *chunks, uint32_t chunks_count, uint32_t alignment,
		     weir_error *error)
{
	sort_key *keys = calloc(chunks_count, sizeof *keys);
	int code = 0;

	*layout = (weir_layout){.alignment = alignment, .chunks_count = chunks_count};
	layout->classes = calloc(chunks_count, sizeof *layout->classes);
	layout->chunk_set = calloc(chunks_count, sizeof *layout->chunk_set);
	layout->set_class = calloc(chunks_count, sizeof *layout->set_class);
	layout->set_chunks = calloc(chunks_count, sizeof *layout->set_chunks);
	if (!keys || !layout->classes || !layout->chunk_set || !layout->set_class || !layout->set_chunks)
		code = weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory to lay out %u chunks",
				 chunks_count);
	if (code == 0)
		code = fill_keys(keys, chunks, chunks_count, alignment, error);
	if (code == 0) {
		qsort(keys, chunks_count, sizeof *keys, by_room_falling);
		form_classes(layout, keys);
		qsort(keys, chunks_count, sizeof *keys, by_class_and_group);
		form_sets(layout, keys);
	} else {
		weir_layout_free(layout);
	}
	free(keys);
	return code;
}

void weir_layout_free(weir_layout *layout)
{
	free(layout->classes);
	free(layout->chunk_set);
	free(layout->set_class);
	free(layout->set_chunks);
	memset(layout, 0, sizeof *layout);
}

static uint32_t least_of(const weir_size_class *entry, uint32_t slots_least)
{
	if (slots_least == 0)
		slots_least = 1;
	return slots_least < entry->chunks_count ? slots_least : entry->chunks_count;
}

int weir_layout_cost(const weir_layout *layout, uint64_t slot_overhead_bytes, uint32_t slots_least, uint64_t *least_bytes,
		     uint64_t *all_bytes)
{
	wide least = 0, all = 0;

	for (uint32_t i = 0; i < layout->classes_count; i++) {
		const weir_size_class *entry = &layout->classes[i];
		wide cost = (wide)entry->slot_bytes + slot_overhead_bytes;

		least += cost * least_of(entry, slots_least);
		all += cost * entry->chunks_count;
	}
	if (all > INT64_MAX)
		return WEIR_EINVAL;
	*least_bytes = (uint64_t)least;
	*all_bytes = (uint64_t)all;
	return 0;
}

/* One round: the classes without slots share `bytes`; the first whose share is below its least gets that and leaves the
 * sharing.  Returns what it took, or 0 when every share is large enough (and has been given). */
static uint64_t share_round(weir_layout *layout, uint64_t bytes, uint64_t overhead, uint32_t slots_least)
{
	wide wanted = 0;

	for (uint32_t i = 0; i < layout->classes_count; i++)
		if (layout->classes[i].slots_count == 0)
			wanted += ((wide)layout->classes[i].slot_bytes + overhead) * layout->classes[i].chunks_count;
	for (int give = 0; give < 2; give++) {
		for (uint32_t i = 0; i < layout->classes_count; i++) {
			weir_size_class *entry = &layout->classes[i];
			wide share = wanted == 0 ? 0 : (wide)bytes * entry->chunks_count / wanted;
			uint32_t least = least_of(entry, slots_least);

			if (entry->slots_count != 0)
				continue;
			if (share < least) {
				entry->slots_count = least;
				return least * (entry->slot_bytes + overhead);
			}
			if (give)
				entry->slots_count = share > entry->chunks_count ? entry->chunks_count : (uint32_t)share;
		}
	}
	return 0;
}

/* Rounding down leaves less than one slot per class: give it to whom it fits, largest first. */
static void share_rest(weir_layout *layout, uint64_t bytes, uint64_t overhead)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < layout->classes_count; i++)
		used += layout->classes[i].slots_count * (layout->classes[i].slot_bytes + overhead);
	for (uint32_t i = 0; i < layout->classes_count; i++) {
		weir_size_class *entry = &layout->classes[i];

		if (entry->slots_count == entry->chunks_count || bytes - used < entry->slot_bytes + overhead)
			continue;
		entry->slots_count++;
		used += entry->slot_bytes + overhead;
	}
}

int weir_layout_divide(weir_layout *layout, uint64_t bytes, uint64_t slot_overhead_bytes, uint32_t slots_least)
{
	uint64_t least, all, left = bytes, taken;
	int code = weir_layout_cost(layout, slot_overhead_bytes, slots_least, &least, &all);

	if (code < 0)
		return code;
	if (bytes < least)
		return WEIR_EBUDGET;
	for (uint32_t i = 0; i < layout->classes_count; i++)
		layout->classes[i].slots_count = bytes >= all ? layout->classes[i].chunks_count : 0;
	if (bytes >= all)
		return 0;
	while ((taken = share_round(layout, left, slot_overhead_bytes, slots_least)) > 0)
		left -= taken;
	share_rest(layout, bytes, slot_overhead_bytes);
	return 0;
}
