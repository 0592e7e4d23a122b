-- The steps of one entry; queue.lua comes before.

-- Makes the caller a holder.
local function grant(mine, at, new, taken)
  mine.fence, mine.since, mine.slots = after(fence), digits(micros), lowest(taken, mine.weight, 0)
  fence = mine.fence
  redis.call('HSET', S, 'fence', mine.fence, 'ticket', ticket and ticket > mine.ticket and ticket or mine.ticket)
  if not new then
    redis.call('ZREM', Q, at)
    redis.call('ZREM', D, at)
  end
  redis.call('HSET', E, id, cjson.encode(mine))
  lease(mine, id, mine.ttl)
  wake()
  keep(mine.ttl, holdEnd(mine))
end

-- Gives the caller its place in the queue, or keeps it alive there. Returns in how
-- many ms it is to ask again.
local function queueUp(mine, at, before)
  if not ticket or ticket < mine.ticket then redis.call('HSET', S, 'ticket', mine.ticket) end
  redis.call('HSET', E, id, cjson.encode(mine))
  redis.call('ZADD', Q, 0, at)
  redis.call('ZADD', D, now + mine.ttl, at)
  local recheck = math.floor(mine.ttl / 3)
  local soon = (changed or before == 1) and wake()
  if soon then recheck = math.min(recheck, soon) end
  if mine.join == 0 then recheck = math.min(recheck, 1000) end
  if before == 0 then
    local ends = redis.call('ZRANGE', H, 0, 0, 'WITHSCORES')[2]
    if ends then recheck = math.min(recheck, msUntil(ends) + 1) end
    if quiet > now then recheck = math.min(recheck, msUntil(quiet) + 1) end
  else -- the next may all have died, with the holder
    local over = 0
    for _, near in ipairs(redis.call('ZRANGE', Q, 0, math.min(before, 3) - 1)) do
      over = math.max(over, tonumber(redis.call('ZSCORE', D, near)) or 0)
    end
    if over > 0 then recheck = math.min(recheck, msUntil(over) + 1) end
  end
  return math.max(recheck, 1)
end

local function join()
  local mine = cjson.decode(text)
  local old, oldText = record(id)
  local gone = redis.call('ZSCORE', G, id)
  local evicted = gone and redis.call('HGET', E, id .. '!')
  if evicted then return {verdict = 'evicted', by = evicted} end
  if gone and not nowait and not maxQueue and within == '' then return {verdict = 'gone'} end
  if oldText or mine.ticket ~= digits(0) then bypassMemoryLimit() end
  checkEpoch()
  dropExpired()
  if not gone and oldText and redis.call('ZSCORE', H, id) and old.slots ~= '' then
    -- A lease that is prolonged no more is none to begin with. The slot stays taken
    -- until its owner leaves: this may come late, and the command be running.
    local evictor = redis.call('HGET', E, id .. '!')
    if evictor then return {verdict = 'evicted', by = evictor} end
    lease(old, id, mine.ttl)
    keep(mine.ttl, holdEnd(old))
    return {verdict = 'granted', epoch = epoch, record = old, noRunID = noRunID}
  end
  -- Who asks to join has not begun: a grant without slots is made again.
  if not gone then redis.call('ZREM', H, id) end
  if oldText and old.ticket then mine.ticket, mine.since = old.ticket, old.since end
  local new = mine.ticket == digits(0)
  if new then mine.ticket, mine.since = after(ticket), digits(micros) end
  local at = place(mine, id)
  local before = redis.call('ZLEXCOUNT', Q, '-', '(' .. at)
  local sum, limit, taken = holders()
  local function fitsNow() return not gone and before == 0 and quiet <= now and fits(mine, sum, limit) end
  -- A run inside a holder of this very name would wait for itself.
  local inside
  for run in within:gmatch('%x+') do
    if redis.call('ZSCORE', H, run) and alive(record(run), run) then inside = run end
  end
  local full, replaced = false, {}
  if new and not inside and not nowait and (maxQueue or mine.replace ~= '') and not fitsNow() then
    local _, rivals = ahead(at)
    if mine.replace == '' then rivals = {} end
    if maxQueue and redis.call('ZCARD', Q) - #rivals >= maxQueue then
      full = true
    elseif not gone and mine.replace ~= '' then
      replaced = replace(mine, rivals)
      before, changed = before - #rivals, true
      sum, limit, taken = holders()
    end
  end
  local answer = {verdict = 'granted', epoch = epoch, record = mine, noRunID = noRunID, entries = listed(replaced)}
  if not full and fitsNow() then
    grant(mine, at, new, taken)
    return answer
  end
  local quarantined = quiet > now and fits(mine, sum, limit) and msUntil(quiet) or 0
  if inside or nowait or full then
    if gone or (full and maxQueue > 0) then quarantined = 0 end
    if quarantined == 0 then removeEntry(mine, id) end -- or else it is asked again
    wake()
    return refuse({verdict = inside and 'nested' or 'busy', inside = inside, full = full}, quarantined)
  end
  if gone then return {verdict = 'gone'} end
  answer.verdict, answer.place, answer.recheck, answer.quarantine = 'waiting', before + 1, queueUp(mine, at, before), quarantined
  keep(mine.ttl)
  return answer
end

local function renew()
  bypassMemoryLimit()
  dropExpired()
  local gone = redis.call('ZSCORE', G, id)
  if not gone and redis.call('ZSCORE', H, id) then
    -- A server that is another one than before goes through checkEpoch all the same.
    if stored then name = stored end
    checkEpoch()
    local mine, oldText = record(id)
    local evicted = redis.call('HGET', E, id .. '!')
    if evicted or (oldText and not alive(mine, id)) then
      if changed then wake() end
      return evicted and {verdict = 'evicted', by = evicted} or {verdict = 'lost'}
    end
    if text ~= '' and (not oldText or mine.ttl == 0) then
      mine = cjson.decode(text)
      redis.call('HSET', E, id, text)
    end
    local ttl = mine.ttl > 0 and mine.ttl or 1000
    lease(mine, id, ttl)
    if changed then wake() end
    keep(ttl, holdEnd(mine))
    return {verdict = 'held', epoch = epoch, record = mine.ttl > 0 and mine or nil, name = name}
  end
  if text == '' or gone then
    if changed then wake() end
    return {verdict = 'lost'}
  end
  if stored then name = stored end
  checkEpoch()
  local mine = cjson.decode(text)
  local sum, limit, taken = holders()
  if epoch == known or not fits(mine, sum, limit) or overlap(mine.slots, taken) then
    if changed then wake() end
    return {verdict = 'lost'}
  end
  -- The store has forgotten this holder, and its slots are still free. It may
  -- remember it as the waiter that it was before.
  redis.call('ZREM', Q, place(mine, id))
  redis.call('ZREM', D, place(mine, id))
  if not fence or fence < mine.fence then
    fence = mine.fence
    redis.call('HSET', S, 'fence', fence)
  end
  redis.call('HSET', E, id, text)
  lease(mine, id, mine.ttl)
  if changed then wake() end
  keep(mine.ttl, holdEnd(mine))
  return {verdict = 'held', epoch = epoch, record = mine, name = name}
end

local function release()
  bypassMemoryLimit()
  local over = tonumber(redis.call('ZSCORE', H, id) or nil)
  local mine, oldText = record(id)
  if not oldText and text ~= '' then mine = cjson.decode(text) end
  local was = over and over > now or oldText and not over or false -- what has run out was not there
  -- Missing because it was taken out, or because this is another server now?
  if not was and epoch then
    if stored then name = stored end
    checkEpoch()
  end
  if mode == 'release' and oldText and holdEnd(mine) > now and redis.call('ZSCORE', H, id) and not redis.call('HGET', E, id .. '!') then
    -- The slot stays for the rest of the hold.
    was = was and alive(mine, id)
    redis.call('ZADD', H, holdEnd(mine), id)
    redis.call('HDEL', E, id .. '@')
    addTombstone(id)
  else
    removeEntry(mine, id)
  end
  dropExpired()
  wake()
  return {verdict = 'released', existed = was, epoch = epoch or ''}
end

local function evictEntry()
  bypassMemoryLimit()
  dropExpired()
  local r, oldText = record(id)
  local there = redis.call('ZSCORE', H, id) or (r.order and redis.call('ZSCORE', Q, place(r, id)))
  if there then
    evict(id, r, by)
    changed = true
  end
  if changed then wake() end
  return {verdict = there and 'marked' or 'lost'}
end

-- It changes nothing.
local function list()
  local entries = {}
  local function add(state, who, moment)
    local r, text = record(who)
    if text and tonumber(moment) > now then entries[#entries + 1] = entryOf(state, who, moment, r) end
  end
  local live = redis.call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #live, 2 do add('holding', live[i], live[i + 1]) end
  for _, waiter in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
    add('waiting', waiter:sub(33), redis.call('ZSCORE', D, waiter) or now + 1)
  end
  return {verdict = 'list', name = stored or nil, quarantine = msUntil(quiet), entries = listed(entries)}
end

local modes = {join = join, renew = renew, release = release, leave = release, evict = evictEntry, list = list}
return cjson.encode(modes[mode]())
